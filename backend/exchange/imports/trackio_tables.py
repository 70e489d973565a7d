"""The tables of a Trackio database, for the operations of the sandbox."""

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from backend.base.sandbox.operation import Request
from backend.config.messages import question_text
from backend.exchange.imports.operations import MAX_RUNS, WORDS, LogPart, Point, unix_time
from backend.exchange.imports.texts import MAX_TEXT_CHARACTERS

MAX_CONFIGS_BYTES = 1_000_000
"""Maximum size of the configs of all runs together."""
MAX_POINTS = 18_000
"""Maximum number of points in one reply."""
MAX_REPLY_BYTES = 400_000
"""Maximum characters of completions in one reply."""
TABLE_TYPE = "trackio.table"
COMPLETION_COLUMNS = {"prompt", "completion"}
RUNS_QUERY_BY_KEY = {
    "run_id": "SELECT run_id, run_name, min(rowid) FROM metrics GROUP BY run_id ORDER BY 3 DESC LIMIT ?",
    "run_name": "SELECT run_name, run_name, min(rowid) FROM metrics GROUP BY 1 ORDER BY 3 DESC LIMIT ?",
}
"""Statements by the column that identifies a run; older versions only have names."""
CONFIGS_QUERY_BY_KEY = {
    "run_id": "SELECT run_id, config FROM configs",
    "run_name": "SELECT run_name, config FROM configs",
}
ROWS_QUERY = (
    "SELECT rowid, timestamp, step, metrics FROM metrics WHERE rowid IN "
    "(SELECT rowid FROM metrics WHERE {key} = ? AND rowid > ? ORDER BY 1 LIMIT ?) ORDER BY 1"
)
"""Statement in which only numbers are sorted: a sort of the rows would hold all texts of a run."""
ROWS_QUERY_BY_KEY = {key: ROWS_QUERY.format(key=key) for key in ("run_id", "run_name")}


def run_key(columns: Mapping[str, set[str]]) -> str:
    """Return the column that identifies a run; an empty text if the tables are not those of Trackio."""
    if not {"run_name", "step", "metrics", "timestamp"} <= columns["metrics"]:
        return ""
    return "run_id" if "run_id" in columns["metrics"] else "run_name"


def list_runs(connection: sqlite3.Connection, key: str, columns: Mapping[str, set[str]]) -> dict[str, Any]:
    """Return id, name, config and no failure of the newest runs."""
    rows = connection.execute(RUNS_QUERY_BY_KEY[key], (MAX_RUNS + 1,)).fetchall()
    configs = _configs(connection, key) if {key, "config"} <= columns["configs"] else {}
    runs = [[str(run), str(name)[:200], configs.get(str(run), {}), ""] for run, name, _ in rows[:MAX_RUNS]]
    return {"runs": runs[::-1], "is_cut": len(rows) > MAX_RUNS}


def _configs(connection: sqlite3.Connection, key: str) -> dict[str, Any]:
    configs, size = {}, 0
    for run, config in connection.execute(CONFIGS_QUERY_BY_KEY[key]):
        parsed_config = _json(config)
        size += len(json.dumps(parsed_config))
        if size <= MAX_CONFIGS_BYTES and isinstance(parsed_config, dict):
            configs[str(run)] = {
                name: value for name, value in parsed_config.items() if not name.startswith("_")
            }
    return configs


def _json(content: Any) -> Any:
    if isinstance(content, str | bytes):
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            return None
    return None


def read_values(connection: sqlite3.Connection, request: Request) -> dict[str, Any]:
    """Return values and completions of some rows of a run."""
    log_part, samples, size, last = LogPart(), list[Any](), 0, 0
    read_samples = int(request["done"])
    query = ROWS_QUERY_BY_KEY["run_id" if request["key"] == "run_id" else "run_name"]
    arguments = request["run"], request["row"], MAX_POINTS
    for row, timestamp, step, content in connection.execute(query, arguments):
        cells = _json(content)
        if isinstance(cells, dict) and type(step) is int and -(2**63) <= step < 2**63:
            if not read_samples:
                _add_cells(log_part, cells, step, unix_time(timestamp))
            for sample in _samples(cells)[read_samples:]:
                if size > MAX_REPLY_BYTES:
                    log_part.facts = {"samples": samples, "done": read_samples}
                    return log_part.answer(last or request["row"])
                samples.append(sample)
                size += len(json.dumps(sample))
                read_samples += 1
        last, read_samples = row, 0
        if len(log_part) >= MAX_POINTS or size > MAX_REPLY_BYTES:
            break
    log_part.facts = {"samples": samples, "done": 0}
    return log_part.answer(last)


def _add_cells(log_part: LogPart, cells: dict[str, Any], step: int, time: float, prefix: str = "") -> None:
    for name, value in cells.items():
        path = f"{prefix}{name}"
        if isinstance(value, dict) and value.get("_type") is None and prefix.count("/") < 4:
            _add_cells(log_part, value, step, time, f"{path}/")
        elif (number := _number(value)) is not None:
            log_part.add(Point(path, step, number, time))


def _number(value: Any) -> float | None:
    if isinstance(value, str):
        return float(WORDS[value]) if value in WORDS else None
    try:
        return float(value) if isinstance(value, bool | int | float) else None
    except OverflowError:
        return None


def _samples(cells: dict[str, Any]) -> list[Any]:
    """Return the rows of the tables of completions that TRL logs; texts are cut."""
    samples = []
    for value in cells.values():
        rows = value.get("_value") if isinstance(value, dict) and value.get("_type") == TABLE_TYPE else None
        for row in rows if isinstance(rows, list) else []:
            if isinstance(row, dict) and row.keys() >= COMPLETION_COLUMNS:
                numbers = {name: cell for name, cell in row.items() if isinstance(cell, int | float)}
                texts = {
                    name: question_text(row[name])[: MAX_TEXT_CHARACTERS + 1] for name in COMPLETION_COLUMNS
                }
                samples.append(numbers | texts)
    return samples
