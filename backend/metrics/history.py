"""Read the currently valid metrics of a run, step by step."""

from collections.abc import Iterator
from itertools import groupby

from sqlalchemy.orm import Session

from backend.metrics.reading import valid_rows


def valid_steps(session: Session, run_id: str, *, up_to: int) -> Iterator[tuple[int, dict[str, float]]]:
    """Yield each step up to `up_to` with its metrics, including the inherited steps of a fork."""
    for step, rows in groupby(valid_rows(session, run_id, up_to=up_to), key=lambda row: row.step):
        yield step, {row.name: row.value for row in rows}
