"""Load the facts about a checkpoint's run for its model card."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.base.errors import Conflict
from backend.config.run import RunConfig
from backend.metrics.reading import read_points
from backend.metrics.series import Points
from backend.runs.checkpoints import find_checkpoint_at, load_checkpoints
from backend.storage.models import Attempt, Checkpoint, MetricBlock, MetricKey, Run
from backend.storage.run_lookup import require_run

CURVES = (
    "reward/mean",
    "eval/accuracy",
    "policy/entropy",
    "kl/k3",
    "length/mean",
    "length/truncated_frac",
    "loss/total",
    "optim/grad_norm",
)
"""Metrics in the card's table, if the run has them."""


@dataclass(frozen=True, slots=True)
class CardFacts:
    """The state of a run when it wrote a checkpoint."""

    name: str
    variant: str
    notes: str
    config: RunConfig
    step: int
    last_step: int
    """Last recorded step of the run."""
    verdict: str
    onset: tuple[int, int] | None
    cause: str
    versions: Mapping[str, Any]
    """Software versions of the attempt that wrote the checkpoint."""
    device: str
    curves: Mapping[str, Points]
    """Points of CURVES and of all held-out metrics, up to the step of the checkpoint."""

    @property
    def is_adapter(self) -> bool:
        """Whether the checkpoint contains only an adapter."""
        return self.config.policy.adapter.type != "none"


def find_checkpoint(session: Session, run_id: str, step: int | None) -> Checkpoint:
    """Return the newest checkpoint of a step, or of the run; raise RunNotFound, NotFound or Conflict."""
    require_run(session, run_id)
    if step is not None:
        return find_checkpoint_at(session, run_id, step)
    rows = load_checkpoints(session, run_id)
    if not rows:
        raise Conflict(f"run {run_id!r} has no checkpoint yet: there is nothing to export")
    return rows[0]


def read_card_facts(session: Session, checkpoint: Checkpoint) -> CardFacts:
    """Return the facts for the card of a checkpoint."""
    run = session.get_one(Run, checkpoint.run_id)
    attempt = session.get(Attempt, (run.id, checkpoint.attempt))
    points = read_points(session, [run.id], [*CURVES, *_held_out(session, run)])
    is_ill = run.onset_healthy is not None and run.onset_sick is not None
    return CardFacts(
        name=run.name,
        variant=run.variant,
        notes=run.notes,
        config=RunConfig.model_validate(run.config),
        step=checkpoint.step,
        last_step=run.last_step,
        verdict=run.verdict or "",
        onset=(run.onset_healthy or 0, run.onset_sick or 0) if is_ill else None,
        cause=run.cause,
        versions=attempt.versions if attempt else {},
        device=attempt.device if attempt else "",
        curves={name: _until(curve, checkpoint.step) for (_, name), curve in points.items()},
    )


def _held_out(session: Session, run: Run) -> list[str]:
    """Return the names of the held-out metrics that the run has recorded."""
    packed_keys = select(MetricBlock.key_id).where(MetricBlock.run_id == run.id)
    names = select(MetricKey.name).where(MetricKey.id.in_(packed_keys), MetricKey.name.startswith("eval/"))
    summary = (name for name in run.summary.get("last", {}) if name.startswith("eval/"))
    return sorted({*session.scalars(names), *summary} - set(CURVES))


def _until(points: Points, step: int) -> Points:
    is_shown = points.steps <= step
    return Points(points.steps[is_shown], points.values[is_shown])
