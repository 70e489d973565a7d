"""Command-line arguments of a worker that ends by itself."""

import argparse
import os
from collections.abc import Mapping
from datetime import datetime

from backend.errors import GrpoLabError
from backend.workers.deadline import deadline_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what limits a worker."""
    parser.add_argument("--runs", type=int, metavar="N", help="end after so many runs")
    parser.add_argument("--idle", type=float, metavar="SECONDS", help="end when no run came for so long")
    parser.add_argument(
        "--until",
        metavar="TIME",
        help="end at this time of this machine's clock, such as 03:55 or 2026-11-24T03:55; running runs save "
        "a checkpoint and go back to the queue",
    )
    parser.add_argument("--devices", type=int, metavar="N", help="use so many GPUs, or CPU slots")


def limits_as_settings(
    runs: int | None, idle: float | None, until: str | None, devices: int | None
) -> Mapping[str, str]:
    """The environment variables that the arguments stand for; raises GrpoLabError for a missed deadline."""
    found: dict[str, str] = {}
    if until is not None:
        now = datetime.now()  # noqa: DTZ005 - an offset would be that of today, not of the deadline
        try:
            moment = deadline_of(until, now)
        except ValueError as error:
            raise GrpoLabError(f"--until {error}") from None
        if moment <= now:
            late = f"{moment:%Y-%m-%d %H:%M}, and it is {now:%H:%M} on {os.uname().nodename}"
            raise GrpoLabError(f"--until {until} is over: it means {late}. The worker starts nothing.")
        found["WORKER_UNTIL"] = str(moment.timestamp())
    given = {"WORKER_RUNS": runs, "WORKER_IDLE_SECONDS": idle, "WORKER_SLOTS": devices}
    return found | {name: str(value) for name, value in given.items() if value is not None}
