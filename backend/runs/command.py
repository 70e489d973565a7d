"""The command `runs`, which lists runs in a terminal as a table or as JSON."""

import json
from collections.abc import Iterator
from typing import Any

import orjson
from sqlalchemy import Row

from backend.base.errors import GrpoLabError
from backend.base.settings import Settings
from backend.base.text import clean_text
from backend.http.responses import Json
from backend.runs.list import RunFilter, count_runs, list_runs
from backend.runs.order import read_order
from backend.runs.query.syntax import QueryError
from backend.runs.store import run_json
from backend.storage.engine import open_read_session_at

METRICS = ("reward/mean", "eval/accuracy")
HEAD = ("name", "variant", "seed", "status", "step", "verdict", *METRICS, "id")
MAX_COLUMN_WIDTH = 40
"""Maximum width of a column, in characters."""


def listed_runs(
    settings: Settings, run_filter: RunFilter, *, sort: str, limit: int, as_json: bool
) -> Iterator[str]:
    """Yield the lines of the list; raise GrpoLabError, with a caret at the error, for an invalid query."""
    try:
        with open_read_session_at(settings.effective_database_url) as session:
            total = count_runs(session, run_filter)
            page_size = limit if limit > 0 else max(total, 1)
            rows = list_runs(
                session, run_filter, read_order(sort), limit=page_size, cursor="", with_config=as_json
            )[:page_size]
            if as_json:
                yield from (bytes(Json(run_json(row)).body).decode() for row in rows)
            else:
                yield from _format_table([HEAD, *map(_cells, rows)])
                yield f"{len(rows):,} of {total:,} run{'' if total == 1 else 's'}"
    except QueryError as error:
        raise GrpoLabError(_explain_error(error, run_filter.query)) from None


def _explain_error(error: QueryError, query: str) -> str:
    """Return the error message, and the query with a caret below the character that caused it."""
    printable_query = "".join(character if character.isprintable() else " " for character in query)
    first = max(0, error.position - 60)
    ellipsis = "…" if first else ""
    caret = " " * (error.position - first + len(ellipsis)) + "^"
    return f"{error.errors[0].message}\n    {ellipsis}{printable_query[first : first + 100]}\n    {caret}"


def _cells(row: Row[Any]) -> tuple[str, ...]:
    last = orjson.loads(row.summary)["last"]
    step = f"{row.last_step}/{row.steps}"
    numbers = (_number(last.get(metric)) for metric in METRICS)
    return (row.name, row.variant, str(row.seed), row.status, step, row.verdict or "-", *numbers, row.id)


def _number(value: float | str | None) -> str:
    return "-" if value is None else value if isinstance(value, str) else f"{value:.4g}"


def _format_table(rows: list[tuple[str, ...]]) -> Iterator[str]:
    """Yield the rows as aligned columns, with control characters escaped."""
    safe_rows = [[_escape_text(cell)[:MAX_COLUMN_WIDTH] for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in safe_rows) for column in range(len(HEAD))]
    for row in safe_rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _escape_text(text: str) -> str:
    return text if text.isprintable() else json.dumps(clean_text(text))[1:-1]
