"""Packed points of runs whose steps have gaps were incomplete: such runs are packed again."""

from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

_PACKED_WRONGLY = """
SELECT attempt.run_id FROM attempt
LEFT JOIN (
    SELECT metric.run_id, metric.attempt, count(*) AS points
    FROM metric JOIN attempt ON attempt.run_id = metric.run_id AND attempt.number = metric.attempt
    WHERE metric.step <= attempt.packed_step
    GROUP BY metric.run_id, metric.attempt
) AS written ON written.run_id = attempt.run_id AND written.attempt = attempt.number
LEFT JOIN (
    SELECT run_id, attempt, sum(points) AS points FROM metric_block GROUP BY run_id, attempt
) AS packed ON packed.run_id = attempt.run_id AND packed.attempt = attempt.number
WHERE coalesce(written.points, 0) <> coalesce(packed.points, 0)
"""
"""Runs of which not all rows up to `packed_step` are in blocks."""


def upgrade() -> None:
    op.execute(f"CREATE TEMPORARY TABLE packed_wrongly AS {_PACKED_WRONGLY}")
    op.execute("DELETE FROM metric_block WHERE run_id IN (SELECT run_id FROM packed_wrongly)")
    op.execute("UPDATE attempt SET packed_step = -1 WHERE run_id IN (SELECT run_id FROM packed_wrongly)")
    op.execute("DROP TABLE packed_wrongly")


def downgrade() -> None:
    """An older version expects its own blocks; it makes them anew."""
    op.execute("UPDATE attempt SET packed_step = -1")
    op.execute("DELETE FROM metric_block")
