"""Operations of the sandbox that read a Trackio database at a path without writing to it.

Nothing in the file is executed: only tables with known names and columns are read, without triggers, views,
virtual tables and functions.
"""

import json
import math
import sqlite3
from contextlib import closing
from datetime import datetime
from typing import Any
from urllib.parse import quote

from backend.base.sandbox.operation import Operation, Request
from backend.config.messages import question_text
from backend.exchange.imports.operations import MAX_RUNS, WORDS, LogPart, Point
from backend.exchange.imports.texts import MAX_TEXT_CHARACTERS

MAX_CONFIG_CHARACTERS = 100_000
MAX_ROW_BYTES = 16_000_000
MAX_POINTS = 18_000
"""Maximum number of points in one reply."""
MAX_REPLY_BYTES = 400_000
"""Maximum characters of completions in one reply."""
TABLE_TYPE = "trackio.table"
COMPLETION_COLUMNS = {"prompt", "completion"}
ALLOWED_ACTIONS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_TRANSACTION}
ALLOWED_FUNCTIONS = {"count", "min"}

EMPTY_QUERY_BY_TABLE = {
    "metrics": "SELECT * FROM metrics LIMIT 0",
    "configs": "SELECT * FROM configs LIMIT 0",
}
RUNS_QUERY_BY_KEY = {
    "run_id": "SELECT run_id, run_name, count(*), min(rowid) FROM metrics GROUP BY run_id ORDER BY 4 LIMIT ?",
    "run_name": "SELECT run_name, run_name, count(*), min(rowid) FROM metrics GROUP BY 1 ORDER BY 4 LIMIT ?",
}
"""Statements by the column that identifies a run; older versions only have names."""
CONFIGS_QUERY_BY_KEY = {
    "run_id": "SELECT run_id, config FROM configs",
    "run_name": "SELECT run_name, config FROM configs",
}
ROWS_QUERY_BY_KEY = {
    "run_id": "SELECT rowid, timestamp, step, metrics FROM metrics WHERE run_id = ? AND rowid > ? ORDER BY 1",
    "run_name": "SELECT rowid, timestamp, step, metrics FROM metrics "
    "WHERE run_name = ? AND rowid > ? ORDER BY 1",
}


def _open(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"file:{quote(path)}?mode=ro&immutable=1", uri=True)
    connection.text_factory = lambda data: data.decode(errors="replace")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_ROW_BYTES)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.set_authorizer(_authorize)
    return connection


def _authorize(action: int, first: str | None, second: str | None, *_: Any) -> int:
    if action == sqlite3.SQLITE_FUNCTION:
        return sqlite3.SQLITE_OK if str(second).lower() in ALLOWED_FUNCTIONS else sqlite3.SQLITE_DENY
    return sqlite3.SQLITE_OK if action in ALLOWED_ACTIONS else sqlite3.SQLITE_DENY


def _check_table(connection: sqlite3.Connection, name: str) -> list[str]:
    """Return the columns of a plain table; none if the table does not exist."""
    query = "SELECT type, sql FROM sqlite_master WHERE name = ? COLLATE NOCASE"
    row = connection.execute(query, (name,)).fetchone()
    if row is None:
        return []
    if row[0] != "table" or str(row[1]).split()[:2] != ["CREATE", "TABLE"]:
        raise ValueError(f"{name} is not a plain table")
    return [str(column[0]) for column in connection.execute(EMPTY_QUERY_BY_TABLE[name]).description]


def runs(request: Request) -> dict[str, Any]:
    """Return the runs in the order in which they began, with their config."""
    with closing(_open(request["path"])) as connection:
        columns = _check_table(connection, "metrics")
        if not {"run_name", "step", "metrics", "timestamp"} <= set(columns):
            raise ValueError("there is no table of metrics as Trackio makes it")
        key = "run_id" if "run_id" in columns else "run_name"
        query = RUNS_QUERY_BY_KEY[key]
        run_rows = connection.execute(query, (MAX_RUNS + 1,)).fetchall()
        if len(run_rows) > MAX_RUNS:
            raise ValueError(f"more than {MAX_RUNS} runs")
        config_columns = _check_table(connection, "configs")
        configs = _configs(connection, key) if {key, "config"} <= set(config_columns) else {}
    listed_runs = [
        [str(run), str(name)[:200], rows, configs.get(str(run), {})] for run, name, rows, _ in run_rows
    ]
    return {"key": key, "runs": listed_runs}


def _configs(connection: sqlite3.Connection, key: str) -> dict[str, Any]:
    configs, size = {}, 0
    for run, config in connection.execute(CONFIGS_QUERY_BY_KEY[key]):
        size += len(config or "")
        if size <= 5 * MAX_CONFIG_CHARACTERS and isinstance(parsed_config := _json(config), dict):
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


def values(request: Request) -> dict[str, Any]:
    """Return values and completions of some rows of a run; `used` is the last row, or 0 at the end.

    A row with too many completions for one reply is continued in the next one: `done` is the number of its
    completions that were already returned.
    """
    log_part, samples, size, last, rows = LogPart(), list[Any](), 0, 0, 0
    read_values = int(request["done"])
    key = "run_id" if request["key"] == "run_id" else "run_name"
    query = ROWS_QUERY_BY_KEY[key]
    with closing(_open(request["path"])) as connection:
        for row, timestamp, step, content in connection.execute(query, (request["run"], request["row"])):
            cells = _json(content)
            rows += 1
            if isinstance(cells, dict) and type(step) is int and -(2**63) <= step < 2**63:
                if not read_values:
                    _add_cells(log_part, cells, step, _seconds(timestamp))
                for sample in _samples(cells)[read_values:]:
                    if size > MAX_REPLY_BYTES:
                        log_part.facts = {"samples": samples, "done": read_values}
                        return log_part.answer(last or request["row"])
                    samples.append(sample)
                    size += len(json.dumps(sample))
                    read_values += 1
            last, read_values = row, 0
            if len(log_part) >= MAX_POINTS or size > MAX_REPLY_BYTES or rows >= MAX_POINTS:
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


def _seconds(timestamp: Any) -> float:
    try:
        return datetime.fromisoformat(str(timestamp)).timestamp()
    except (ValueError, OverflowError):
        return math.nan


OPERATIONS = {"trackio-runs": Operation(runs), "trackio-values": Operation(values)}
