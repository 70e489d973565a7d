"""Writes events into SQL at a steady rate, as trainers do: `writer.py DATABASE_URL PER_SECOND SECONDS`.

An event carries its number. One of a second's events comes with a step of a run.
"""

import sys
import time

from backend.config.run import RunConfig
from backend.runs import leases, lifecycle
from backend.runs.events import add_event
from backend.runs.rows import run_row
from backend.storage.engine import open_engine, open_sessions
from backend.storage.models import Run


def main(url: str, per_second: float, seconds: float) -> None:
    """Write, and print how many events it was."""
    sessions = open_sessions(open_engine(url, pool_size=1))
    with sessions.begin() as session:
        run = Run(**run_row("load", "stream", RunConfig()))
        session.add(run)
        session.flush()
        lifecycle.claim_run(session, "load", "here", lease_seconds=seconds + 60)
    began = time.monotonic()
    number = 0
    while (due := number / per_second) < seconds:
        time.sleep(max(0.0, began + due - time.monotonic()))
        number += 1
        with sessions.begin() as session:
            add_event(session, "data", "an event of the load", run_id=run.id, data={"n": number})
            if number % round(per_second) == 0:
                leases.fence(session, run.id, 1, last_step=number)
    print(number)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]))
