"""Trackio's database: a log for each run, with the completions that TRL logs as tables.

Format: trackio.sqlite_storage, version 0.43. Until Trackio closes the database, the newest values of a run
that still trains are in a separate file (`-wal`).
"""

from typing import Any

import numpy as np

from backend.exchange.imports.binary import Points, build_table, check_answer, join_points
from backend.exchange.imports.completions import Completions
from backend.exchange.imports.log import Log, LogMetadata
from backend.exchange.imports.log_file import LogFile, invalid_reply
from backend.exchange.imports.parquet import add_completion
from backend.exchange.imports.table import BadLog, Table, too_many_values

MAX_ROW = 2**62


def read_trackio(file: LogFile) -> list[Log]:
    """Return a log for each run; raise BadLog for any other database."""
    reply = file.run_operation("trackio-runs")
    try:
        key = str(reply["key"])
        listed_runs = [(str(run), str(name), dict(config)) for run, name, _, config in reply["runs"]]
    except (KeyError, TypeError, ValueError):
        raise invalid_reply() from None
    logs, remaining_values = [], file.max_values
    for run, name, config in listed_runs:
        log = _read_run(file, key, run, remaining_values)
        remaining_values -= log.table.points
        seed = config.get("seed")
        log.metadata.name, log.metadata.config = name, config
        log.metadata.seed = seed if type(seed) is int else None
        logs.append(log)
    if not logs:
        raise BadLog("has no runs")
    return logs


def _read_run(file: LogFile, key: str, run: str, remaining_values: int) -> Log:
    chunks, completions, rows, row, read_values = list[Points](), Completions(), Table(), 0, 0
    while True:
        reply = check_answer(
            file.run_operation("trackio-values", key=key, run=run, row=row, done=read_values), MAX_ROW
        )
        next_done = reply.facts.get("done")
        if not reply.used and not next_done:
            break
        if type(next_done) is not int or (reply.used, next_done) <= (row, read_values):
            raise invalid_reply()
        row, read_values, remaining_values = reply.used, next_done, remaining_values - len(reply.points.value)
        if remaining_values < 0:
            raise too_many_values()
        chunks.append(reply.points)
        for sample in _samples(reply.facts):
            add_completion(completions, rows, 0, sample)
    points = join_points(chunks)
    finite = points.time[np.isfinite(points.time)]
    metadata = LogMetadata(
        started_at=float(finite.min()) if len(finite) else None,
        finished_at=float(finite.max()) if len(finite) else None,
    )
    table = build_table(points, "_step", {"_runtime": points.time - finite.min()} if len(finite) else {})
    table.bad = rows.bad
    return Log(table, metadata, completions=completions if len(completions) else None)


def _samples(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    samples = metadata.get("samples")
    if not isinstance(samples, list) or not all(isinstance(sample, dict) for sample in samples):
        raise invalid_reply()
    return [{"step": None, "prompt": "", "completion": "", **sample} for sample in samples]
