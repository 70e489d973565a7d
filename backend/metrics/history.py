"""A run's metrics step by step, as they are valid now."""

from collections.abc import Iterator
from itertools import groupby

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.metrics.values import SPELLINGS
from backend.models import Attempt, Metric, MetricKey


def valid_steps(session: Session, run_id: str, *, up_to: int) -> Iterator[tuple[int, dict[str, float]]]:
    """Each step up to `up_to` in order, with the metrics of the newest attempt that began before it."""
    query = (
        select(Metric.step, Metric.attempt, MetricKey.name, Metric.kind, Metric.value)
        .join(MetricKey, MetricKey.id == Metric.key_id)
        .join(Attempt, (Attempt.run_id == Metric.run_id) & (Attempt.number == Metric.attempt))
        .where(Metric.run_id == run_id, Metric.step <= up_to, Attempt.from_step < Metric.step)
        .order_by(Metric.step, Metric.attempt.desc())
    )
    for step, rows in groupby(session.execute(query), key=lambda row: row.step):
        newest = next(groupby(rows, key=lambda row: row.attempt))[1]
        yield step, {row.name: float(SPELLINGS[row.kind] or row.value) for row in newest}
