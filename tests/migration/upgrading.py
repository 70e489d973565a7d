"""Run upgrades in processes forked from this one, which has imported everything.

Each line of standard input is a request, and its response is one line of JSON. It contains, for each
process, its exit code and the point at which it died, and the resulting schema of the database.

    die EVERY URL    kill -9 at one point after the other (or every n-th), until no point is left
    race NUMBER URL  run this number of upgrades concurrently

Points are before and after each statement, before each commit, and around the copy of a SQLite database."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from backend.storage import migrate
from backend.storage.engine import copy_sqlite, open_engine
from backend.storage.schema import read_schema
from tests.faults import failpoints

Visit = Callable[[str], None]


def main() -> None:
    """Answer requests until standard input ends."""
    for line in sys.stdin:
        form, number, url = line.split()
        processes = {"die": _die, "race": _race}[form]
        print(json.dumps(list(processes(url, int(number)))), flush=True)


def _die(url: str, interval: int) -> Iterator[dict[str, Any]]:
    visit_number = 0
    while True:
        ended_process = _ended(url, *_start(url, _death_at(visit_number)))
        yield ended_process
        if not ended_process["code"]:
            return
        visit_number += interval


def _race(url: str, number: int) -> Iterator[dict[str, Any]]:
    for child, end in [_start(url, lambda _: None) for _ in range(number)]:
        yield _ended(url, child, end)


def _death_at(visit_number: int) -> Visit:
    left = visit_number

    def visit(point: str) -> None:
        nonlocal left
        if not left:
            os.write(2, point.encode())
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1

    return visit


def _start(url: str, visit: Visit) -> tuple[int, int]:
    """Start a process that upgrades, and return its id and the pipe to which it writes its point of death."""
    end, point = os.pipe()
    child = os.fork()
    if child:
        os.close(point)
        return child, end
    os.dup2(point, 2)
    try:
        failpoints.listen(visit)
        _watch_copy(visit)
        migrate.upgrade(url)
    except BaseException as error:  # noqa: BLE001 - a fork must not return
        os.write(2, repr(error).encode())
        os._exit(1)
    os._exit(0)


def _watch_copy(visit: Visit) -> None:
    def watched(engine: Engine, target: Path) -> None:
        visit("before copy")
        copy_sqlite(engine, target)
        visit("after copy")

    vars(migrate)["copy_sqlite"] = watched


def _ended(url: str, child: int, end: int) -> dict[str, Any]:
    with os.fdopen(end, "rb") as pipe:
        point = pipe.read().decode()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    engine = open_engine(url, pool_size=1)
    with engine.connect() as connection:
        schema = read_schema(connection)
    engine.dispose()
    return {"code": code, "point": point, "schema": schema}


if __name__ == "__main__":
    main()
