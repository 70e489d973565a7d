"""A run's metrics step by step, as they are valid now."""

from collections.abc import Iterator
from itertools import groupby

from sqlalchemy.orm import Session

from backend.metrics.reading import valid_rows


def valid_steps(session: Session, run_id: str, *, up_to: int) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield each step up to `up_to` in order, with its metrics; a fork's begin with those it inherited."""
    for step, rows in groupby(valid_rows(session, run_id, up_to=up_to), key=lambda row: row.step):
        yield step, {row.name: row.value for row in rows}
