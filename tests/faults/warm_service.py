"""A parent process that has imported everything and forks a service for each line it reads.

    python -m tests.faults.warm_service      a line is a JSON object of environment variables, the answer a
pid"""

import json
import os
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from backend.service import cli
from backend.service.process.gc_freeze import freeze_gc

with freeze_gc():
    for _name in ("service.main", "storage.migrate", "service.process.server"):
        import_module(f"backend.{_name}")

LOG_VARIABLE = "SERVICE_LOG"
"""Environment variable with the file for the service's output."""


def main() -> None:
    """Serve until standard input ends. The client that requested a service ends it."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _serve(json.loads(line))
        print(child, flush=True)


def _serve(environment: dict[str, str]) -> NoReturn:
    """Run `grpolab serve` in the fork."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    with Path(environment[LOG_VARIABLE]).open("ab") as log, Path(os.devnull).open("rb") as null_input:
        for stream, number in ((null_input, 0), (log, 1), (log, 2)):
            os.dup2(stream.fileno(), number)
    os.environ.update(environment)
    code = 1
    try:
        code = cli.main(["serve"])
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
