"""A run's metrics step by step, as they are valid now."""

from collections.abc import Iterator
from itertools import groupby

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.metrics.attempts import counts, limits_of
from backend.metrics.values import SPELLINGS
from backend.models import Metric, MetricKey


def valid_steps(session: Session, run_id: str, *, up_to: int) -> Iterator[tuple[int, dict[str, float]]]:
    """Each step up to `up_to` in order, with its metrics."""
    query = (
        select(Metric.step, MetricKey.name, Metric.kind, Metric.value)
        .join(MetricKey, MetricKey.id == Metric.key_id)
        .where(Metric.run_id == run_id, Metric.step <= up_to)
        .where(counts(Metric, limits_of(session, [run_id]).get(run_id, ())))
        .order_by(Metric.step, Metric.attempt)
    )
    for step, rows in groupby(session.execute(query), key=lambda row: row.step):
        yield step, {row.name: float(SPELLINGS[row.kind] or row.value) for row in rows}
