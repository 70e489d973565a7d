"""Scope of a search: whose completions, of which steps, kinds, rewards, flags and labels."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import Session

from backend.base.errors import ExperimentNotFound, FieldError, InvalidRequest
from backend.metrics.attempts import load_limits, valid_row_condition
from backend.rollouts.marks import BIT
from backend.rollouts.reading import RolloutFilter
from backend.storage.models import Experiment, GroupTally, RolloutGroup, RolloutLabel, Run
from backend.storage.run_lookup import require_run

MAX_RUNS = 500
"""Runs of one search."""

MAX_STEPS = 500
"""Maximum number of steps that a search names; if more steps can match, all steps are searched."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The completions among which is searched."""

    runs: Sequence[str]
    first_step: int | None = None
    last_step: int | None = None
    kind: str = ""
    filter: RolloutFilter = field(default_factory=lambda: RolloutFilter(run=""))
    """Filter whose conditions on completions apply; the filter's run and step are not used."""
    label: str = ""
    steps: Sequence[int] | None = None
    """Steps that can match; None for all."""

    def of_groups(self, session: Session) -> list[ColumnElement[bool]]:
        """SQL conditions on groups: those that no later attempt hides."""
        conditions = self._of(RolloutGroup, session)
        if self.label:
            conditions.append(
                RolloutGroup.id.in_(select(RolloutLabel.group_id).where(*self._label_conditions()))
            )
        return conditions

    def of_tallies(self, session: Session) -> list[ColumnElement[bool]]:
        """SQL conditions on tallies: those of all stored groups of the runs, steps and kind."""
        is_stored = GroupTally.marks.bitwise_and(BIT["stored"]) != 0
        return [*self._of(GroupTally, session), is_stored]

    def narrow(self, session: Session) -> "Scope":
        """Return the scope without steps whose tallies show that no completion passes the filter."""
        conditions = self.filter.of_tallies()
        if not conditions or self.steps is not None:
            return self
        query = select(GroupTally.step).where(*self.of_tallies(session), *conditions).distinct()
        steps = session.scalars(query.limit(MAX_STEPS + 1)).all()
        return self if len(steps) > MAX_STEPS else replace(self, steps=sorted(steps))

    def labelled(self, session: Session) -> set[str]:
        """Return the completions that have the label."""
        return set(session.scalars(select(RolloutLabel.rollout_id).where(*self._label_conditions())))

    def _of(self, table: Any, session: Session) -> list[ColumnElement[bool]]:
        conditions = [valid_runs_condition(session, self.runs, table)]
        if self.first_step is not None:
            conditions.append(table.step >= self.first_step)
        if self.last_step is not None:
            conditions.append(table.step <= self.last_step)
        if self.kind:
            conditions.append(table.kind == self.kind)
        if self.steps is not None:
            conditions.append(table.step.in_(self.steps))
        return conditions

    def _label_conditions(self) -> list[ColumnElement[bool]]:
        return [RolloutLabel.run_id.in_(self.runs), RolloutLabel.label == self.label]

    def of_run(self, run: str) -> "Scope":
        """Return the part of one run."""
        return replace(self, runs=[run])

    def restrict(self, *, first: int | None, last: int | None, correct: bool | None) -> "Scope":
        """Return a part of it: between two steps, of right or wrong completions."""
        steps = [step for step in (self.first_step, first) if step is not None]
        ends = [step for step in (self.last_step, last) if step is not None]
        changed = self.filter if correct is None else replace(self.filter, correct=correct)
        return replace(
            self, first_step=max(steps, default=None), last_step=min(ends, default=None), filter=changed
        )


def valid_runs_condition(
    session: Session, runs: Sequence[str], table: Any = RolloutGroup
) -> ColumnElement[bool]:
    """SQL condition: groups of these runs, or their tallies, that no later attempt hides."""
    limits = load_limits(session, runs)
    if len(runs) == 1:  # no OR, which keeps databases from their indexes
        return and_(table.run_id == runs[0], valid_row_condition(table, limits.get(runs[0], ())))
    plain = [run for run in runs if not limits.get(run)]
    continued = [
        and_(table.run_id == run, valid_row_condition(table, limits[run])) for run in runs if limits.get(run)
    ]
    return or_(table.run_id.in_(plain), *continued) if continued else table.run_id.in_(plain)


def find_runs(session: Session, runs: Sequence[str], experiment: str) -> Sequence[str]:
    """Return the runs that are named, or all of an experiment; raises NotFound, and InvalidRequest for
    none.
    """
    if bool(runs) == bool(experiment):
        raise InvalidRequest([FieldError("runs", "name runs, or an experiment, and not both")])
    if experiment:
        if session.get(Experiment, experiment) is None:
            raise ExperimentNotFound(experiment)
        listed = Run.experiment_id == experiment, Run.deleting_at.is_(None), Run.deleted_at.is_(None)
        runs = session.scalars(select(Run.id).where(*listed).order_by(Run.id).limit(MAX_RUNS + 1)).all()
    if len(runs) > MAX_RUNS:
        raise InvalidRequest([FieldError("runs", f"a search covers at most {MAX_RUNS} runs")])
    if not experiment:
        for run in runs:
            require_run(session, run)
    return runs
