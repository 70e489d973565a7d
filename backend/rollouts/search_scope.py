"""Scope of a search: whose completions, of which steps, kinds, rewards, flags and labels."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import ColumnElement, and_, exists, or_, select
from sqlalchemy.orm import Session

from backend.db.models import Experiment, Rollout, RolloutGroup, RolloutLabel, Run
from backend.db.run_lookup import must_exist
from backend.errors import ExperimentNotFound, FieldError, InvalidRequest
from backend.metrics.attempts import counts, limits_of
from backend.rollouts.reading import RolloutFilter, completion_conditions

MOST_RUNS = 500
"""Runs of one search."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The completions among which is searched."""

    runs: Sequence[str]
    first_step: int | None = None
    last_step: int | None = None
    kind: str = ""
    filter: RolloutFilter = field(default_factory=lambda: RolloutFilter(run=""))
    """Its conditions on completions; its run and step are not used."""
    label: str = ""

    def of_groups(self, session: Session) -> list[ColumnElement[bool]]:
        """SQL conditions on groups: those that no later attempt hides."""
        found = [valid_of_runs(session, self.runs)]
        if self.first_step is not None:
            found.append(RolloutGroup.step >= self.first_step)
        if self.last_step is not None:
            found.append(RolloutGroup.step <= self.last_step)
        if self.kind:
            found.append(RolloutGroup.kind == self.kind)
        return found

    def of_completions(self) -> list[ColumnElement[bool]]:
        """SQL conditions on completions; none where every one is wanted."""
        found = completion_conditions(self.filter)
        if self.label:
            own = and_(RolloutLabel.rollout_id == Rollout.id, RolloutLabel.label == self.label)
            found.append(exists(select(1).where(own)))
        return found

    def of_run(self, run: str) -> "Scope":
        """The part of one run."""
        return replace(self, runs=[run])

    def only(self, *, first: int | None, last: int | None, correct: bool | None) -> "Scope":
        """A part of it: between two steps, of right or wrong completions."""
        steps = [each for each in (self.first_step, first) if each is not None]
        ends = [each for each in (self.last_step, last) if each is not None]
        changed = self.filter if correct is None else replace(self.filter, correct=correct)
        return replace(
            self, first_step=max(steps, default=None), last_step=min(ends, default=None), filter=changed
        )


def valid_of_runs(session: Session, runs: Sequence[str]) -> ColumnElement[bool]:
    """SQL condition: groups of these runs that no later attempt hides."""
    limits = limits_of(session, runs)
    plain = [run for run in runs if not limits.get(run)]
    continued = [
        and_(RolloutGroup.run_id == run, counts(RolloutGroup, limits[run])) for run in runs if limits.get(run)
    ]
    return or_(RolloutGroup.run_id.in_(plain), *continued)


def runs_of(session: Session, runs: Sequence[str], experiment: str) -> Sequence[str]:
    """The runs that are named, or all of an experiment; raises NotFound, and InvalidRequest for none."""
    if bool(runs) == bool(experiment):
        raise InvalidRequest([FieldError("runs", "name runs, or an experiment, and not both")])
    if experiment:
        if session.get(Experiment, experiment) is None:
            raise ExperimentNotFound(experiment)
        listed = Run.experiment_id == experiment, Run.deleting_at.is_(None), Run.deleted_at.is_(None)
        runs = session.scalars(select(Run.id).where(*listed).order_by(Run.id).limit(MOST_RUNS + 1)).all()
    if len(runs) > MOST_RUNS:
        raise InvalidRequest([FieldError("runs", f"a search covers at most {MOST_RUNS} runs")])
    if not experiment:
        for run in runs:
            must_exist(session, run)
    return runs
