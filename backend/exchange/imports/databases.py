"""SQLite databases of Trackio and MLflow: a log for each run.

Trackio's completions, which TRL logs as tables, are read as well. Until a program closes its database, the
newest values of a run that still trains are in a separate file (`-wal`).
Formats: trackio.sqlite_storage, version 0.43; mlflow.store.tracking.dbmodels, versions 2 and 3.
"""

from typing import Any, NamedTuple

from backend.exchange.imports.binary import (
    Points,
    build_table,
    check_answer,
    join_points,
    times_of,
    with_counted_steps,
)
from backend.exchange.imports.completions import Completions
from backend.exchange.imports.log import Log, LogMetadata
from backend.exchange.imports.log_file import LogFile, invalid_reply
from backend.exchange.imports.parquet import add_completion
from backend.exchange.imports.table import BadLog, Table, TooMany, TooManyColumns, too_many_values

MAX_ROW = 2**62
MLFLOW_KEY = "run_uuid"
ORIGINS = {"run_id": "trackio", "run_name": "trackio", MLFLOW_KEY: "mlflow"}
"""Origin of the runs by the column that identifies them."""


class _Run(NamedTuple):
    """A run as the database lists it."""

    key: str
    """Column that identifies it."""
    id: str
    name: str
    config: dict[str, Any]
    failure: str


def read_database(file: LogFile) -> list[Log]:
    """Return a log for each of the newest runs, as many as an import may have; raise BadLog for a database of
    another program.
    """
    reply = file.run_operation("database-runs")
    try:
        key = str(reply["key"])
        runs = [
            _Run(key, str(run), str(name), dict(config), str(failure))
            for run, name, config, failure in reply["runs"]
        ]
        origin, is_cut = ORIGINS[key], bool(reply["is_cut"])
    except (KeyError, TypeError, ValueError):
        raise invalid_reply() from None
    if not runs:
        raise BadLog("has no runs")
    logs, refusals, remaining_values = list[Log](), list[str](), file.max_values
    for run in reversed(runs):
        try:
            log = _read_run(file, run, remaining_values)
        except TooMany:
            if not logs:
                raise
            is_cut = True
            break
        except TooManyColumns as error:
            if not logs and run is runs[0]:
                raise
            refusals.append(f"The run {run.name} is left out: it {error}.")
            continue
        log.origin = origin
        remaining_values -= log.table.points
        logs.append(log)
    logs.reverse()
    logs[0].metadata.notes += refusals
    if is_cut:
        subject = f"newest {len(logs)} runs" if len(logs) > 1 else "newest run"
        verb = "are" if len(logs) > 1 else "is"
        logs[0].metadata.notes.append(f"Only the {subject} of the database {verb} read.")
    return logs


def _read_run(file: LogFile, run: _Run, remaining_values: int) -> Log:
    chunks, completions, rows, row, read_values = list[Points](), Completions(), Table(), 0, 0
    while True:
        reply = check_answer(
            file.run_operation("database-values", key=run.key, run=run.id, row=row, done=read_values), MAX_ROW
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
    points, notes, step = join_points(chunks), list[str](), "_step" if run.key == MLFLOW_KEY else None
    if len(points.step) and points.step.min() == points.step.max() and len(points.step) > len(points.names):
        points, step = with_counted_steps(points), None
        notes.append("All values have the same step: they are counted in their order.")
    times, seed = times_of(points), run.config.get("seed")
    metadata = LogMetadata(
        name=run.name,
        config=run.config,
        seed=seed if type(seed) is int else None,
        started_at=times.started_at,
        finished_at=times.finished_at,
        failure=run.failure,
        notes=notes,
    )
    table = build_table(points, "_step", times.columns)
    table.bad = rows.bad
    return Log(table, metadata, step=step, completions=completions if len(completions) else None)


def _samples(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    samples = metadata.get("samples")
    if not isinstance(samples, list) or not all(isinstance(sample, dict) for sample in samples):
        raise invalid_reply()
    return [{"step": None, "prompt": "", "completion": "", **sample} for sample in samples]
