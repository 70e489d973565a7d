"""The tables of an MLflow database, for the operations of the sandbox.

Since version 3.7, `mlflow.db` in the working directory is where MLflow stores runs by default.
"""

import json
import math
import re
import sqlite3
import sys
from collections.abc import Mapping
from typing import Any

from backend.base.sandbox.operation import Request
from backend.exchange.imports.operations import MAX_RUNS, LogPart, Point
from backend.exchange.imports.trackio_tables import MAX_POINTS

MAX_PARAM_BYTES, MAX_CONFIGS_BYTES = 20_000, 1_000_000
"""Maximum size of a parameter, and of those of all runs together."""
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
LITERALS = {"True": True, "true": True, "False": False, "false": False, "None": None, "null": None}
_AT = re.compile(r"(?<=mean|best)_at_(?=\d)|(?<=maj|std)_at_(?=\d)")
"""What verl writes for the sign in `mean@4`, which MLflow does not allow in a name."""


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
    runs, remaining_bytes = [], MAX_CONFIGS_BYTES
    for run, name, status, _ in rows[:MAX_RUNS]:
        config = _config(connection, run, remaining_bytes)
        remaining_bytes -= len(json.dumps(config))
        runs.append([str(run), str(name or run)[:200], config, FAILURES.get(str(status), "")])
    return {"runs": runs[::-1], "is_cut": len(rows) > MAX_RUNS}


def _config(connection: sqlite3.Connection, run: Any, max_bytes: int) -> dict[str, Any]:
    """Return the parameters of a run, which MLflow stores as texts, without those that are too large."""
    config = dict[str, Any]()
    for key, text in connection.execute(PARAMS_QUERY, (run,)):
        size = len(json.dumps([str(key), str(text)]))
        if size <= min(max_bytes, MAX_PARAM_BYTES):
            max_bytes -= size
            config[str(key)] = _scalar(str(text))
    return config


def _scalar(text: str) -> Any:
    """Return the number, truth value or None that a text spells, or else the text."""
    if text in LITERALS:
        return LITERALS[text]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def read_values(connection: sqlite3.Connection, request: Request) -> dict[str, Any]:
    """Return some values of a run. MLflow stores NaN as zero and infinity as the largest number."""
    log_part, last = LogPart(), 0
    log_part.facts = {"samples": [], "done": 0}
    for row, time, step, key, value, is_nan in connection.execute(
        ROWS_QUERY, (request["run"], request["row"], MAX_POINTS)
    ):
        last = row
        if type(row) is not int or type(step) is not int or not isinstance(value, int | float):
            continue
        if not isinstance(key, str) or key.startswith(SYSTEM_METRICS):
            continue
        number = math.nan if is_nan else float(value)
        if abs(number) == sys.float_info.max:
            number = math.copysign(math.inf, number)
        seconds = time / 1000 if isinstance(time, int) and abs(time) < 2**53 else math.nan
        log_part.add(Point(_AT.sub("@", key), step, number, seconds))
    return log_part.answer(last)
