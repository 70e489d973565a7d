"""Points stored a second: as whole curves, as an import brings them, and step by step, as trainers write."""

import os
import platform
import time
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from sqlalchemy import insert
from sqlalchemy.orm import Session

from backend.metrics.store import write_points, write_series
from backend.storage.engine import open_engine, open_sessions
from backend.storage.migrate import upgrade
from backend.storage.models import Attempt, Run
from benchmarks.common.installation import installation
from benchmarks.common.service import Service
from benchmarks.storage.rows import attempt_row, run_row

METRICS = 10
ROUNDS = 5
POINTS_OF_A_TRANSACTION = 20_000
"""Of those that are written step by step."""

TYPE = {"Content-Type": "text/csv"}

Curves = Mapping[str, tuple[Any, Any]]


def table(steps: int) -> list[str]:
    """Medians for both databases, in Markdown."""
    found = {database: measured(database, steps) for database in ("sqlite", "postgres")}
    load = os.getloadavg()[2]
    setting = (
        f"{METRICS} metrics of {steps:,} steps, random float64; medians of {ROUNDS} rounds, in which each is "
        f"measured once; {os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, "
        f"load average {load:.1f}."
    )
    lines = [setting, "", "| points a second | sqlite | postgres |", "|---|---|---|"]
    for name in found["sqlite"]:
        rates = (METRICS * steps / median(each[name]) for each in found.values())
        lines.append(f"| {name} | {' | '.join(f'{rate:,.0f}' for rate in rates)} |")
    return lines


def measured(database: str, steps: int) -> dict[str, list[float]]:
    """Seconds of each way in each round."""
    chance = np.random.default_rng(0)
    curves = {f"m{each}": (np.arange(1, steps + 1), chance.normal(size=steps)) for each in range(METRICS)}
    header = ",".join(["step", *curves])
    columns = np.column_stack([np.arange(1, steps + 1), *(values for _, values in curves.values())])
    lines = (",".join([str(int(row[0])), *map(repr, row[1:])]) for row in columns.tolist())
    log = "\n".join([header, *lines]).encode()
    with installation(database) as place:
        upgrade(place.url)
        engine = open_engine(place.url, pool_size=2)
        sessions = open_sessions(engine)
        service = Service(str(place.state), command="serve", DATABASE_URL=place.url)
        try:
            service.wait_until_it_answers()
            found: dict[str, list[float]] = {}
            for number in range(ROUNDS):
                ways: dict[str, Callable[[], object]] = {
                    "whole curves": partial(_whole, sessions.begin, curves),
                    "step by step": partial(_by_step, sessions.begin, curves),
                    "a CSV file, imported over HTTP": partial(_imported, service, log, number),
                }
                for name, way in ways.items():
                    started = time.perf_counter()
                    way()
                    found.setdefault(name, []).append(time.perf_counter() - started)
        finally:
            service.stop()
            engine.dispose()
    return found


def _whole(begin: Callable[[], Any], curves: Curves) -> None:
    with begin() as session:
        write_series(session, _made(session, len(curves["m0"][0])), 1, curves)


def _by_step(begin: Callable[[], Any], curves: Curves) -> None:
    steps = len(curves["m0"][0])
    with begin() as session:
        run = _made(session, steps)
    columns = [values.tolist() for _, values in curves.values()]
    rows = list(enumerate((dict(zip(curves, row, strict=True)) for row in zip(*columns, strict=True)), 1))
    size = POINTS_OF_A_TRANSACTION // METRICS
    for first in range(0, steps, size):
        with begin() as session:
            write_points(session, run, 1, rows[first : first + size])


def _made(session: Session, steps: int) -> str:
    row = run_row(0, "a run", steps)
    session.execute(insert(Run), [row])
    session.execute(insert(Attempt), [attempt_row(row["id"])])
    return str(row["id"])


def _imported(service: Service, log: bytes, number: int) -> None:
    params = {"file": "log.csv", "name": f"round {number}"}
    answer = service.http.post("/api/v1/imports", params=params, content=log, timeout=600, headers=TYPE)
    if answer.status_code != 201:
        raise SystemExit(f"the import was answered with {answer.status_code}: {answer.text[:300]}")
