"""The tables of an MLflow database, for the operations of the sandbox.

Since version 3.7, `mlflow.db` in the working directory is where MLflow stores runs by default.
"""

import json
import math
import sqlite3
import sys
from collections.abc import Mapping
from typing import Any

from backend.base.sandbox.operation import Request
from backend.exchange.imports.operations import MAX_RUNS, LogPart, Point
from backend.exchange.imports.trackio_tables import MAX_POINTS

MAX_CONFIG_CHARACTERS = 20_000
"""Maximum size of the parameters of a run."""
RUN_KEY = "run_uuid"
RUNS_QUERY = (
    "SELECT metrics.run_uuid, runs.name, runs.status, min(metrics.rowid) FROM metrics "
    "JOIN runs ON runs.run_uuid = metrics.run_uuid WHERE runs.lifecycle_stage = 'active' "
    "GROUP BY metrics.run_uuid ORDER BY 4 DESC LIMIT ?"
)
PARAMS_QUERY = "SELECT key, value FROM params WHERE run_uuid = ?"
ROWS_QUERY = (
    "SELECT rowid, timestamp, step, key, value, is_nan FROM metrics WHERE run_uuid = ? AND rowid > ? "
    "ORDER BY 1 LIMIT ?"
)
FAILURES = {
    "FAILED": "MLflow recorded that the run failed",
    "KILLED": "MLflow recorded that the run was killed",
}
SYSTEM_METRICS = "system/"
"""Prefix of MLflow's metrics of the machine, whose steps are those of their own clock."""
LITERALS = {"True": True, "False": False, "None": None}


def are_tables(columns: Mapping[str, set[str]]) -> bool:
    """Return whether the tables are those of MLflow."""
    return (
        {RUN_KEY, "key", "value", "timestamp", "step", "is_nan"} <= columns["metrics"]
        and {RUN_KEY, "name", "status", "lifecycle_stage"} <= columns["runs"]
        and {RUN_KEY, "key", "value"} <= columns["params"]
    )


def list_runs(connection: sqlite3.Connection) -> dict[str, Any]:
    """Return id, name, config and failure of the newest runs with metrics that are not deleted."""
    rows = connection.execute(RUNS_QUERY, (MAX_RUNS + 1,)).fetchall()
    runs = [
        [str(run), str(name or run)[:200], _config(connection, run), FAILURES.get(str(status), "")]
        for run, name, status, _ in rows[:MAX_RUNS]
    ]
    return {"runs": runs[::-1], "is_cut": len(rows) > MAX_RUNS}


def _config(connection: sqlite3.Connection, run: Any) -> dict[str, Any]:
    """Return the parameters of a run, which MLflow stores as texts."""
    config, size = dict[str, Any](), 0
    for key, text in connection.execute(PARAMS_QUERY, (run,)):
        size += len(str(key)) + len(str(text))
        if size > MAX_CONFIG_CHARACTERS:
            break
        config[str(key)] = _literal(str(text))
    return config


def _literal(text: str) -> Any:
    if text in LITERALS:
        return LITERALS[text]
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def read_values(connection: sqlite3.Connection, request: Request) -> dict[str, Any]:
    """Return some values of a run. MLflow stores NaN as zero and infinity as the largest number."""
    log_part, last = LogPart(), 0
    log_part.facts = {"samples": [], "done": 0}
    for row, time, step, key, value, is_nan in connection.execute(
        ROWS_QUERY, (request["run"], request["row"], MAX_POINTS)
    ):
        last = row
        if type(step) is not int or not isinstance(value, int | float) or str(key).startswith(SYSTEM_METRICS):
            continue
        number = math.nan if is_nan else float(value)
        if abs(number) == sys.float_info.max:
            number = math.copysign(math.inf, number)
        seconds = time / 1000 if isinstance(time, int) and abs(time) < 2**53 else math.nan
        log_part.add(Point(str(key), step, number, seconds))
    return log_part.answer(last)
