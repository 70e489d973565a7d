"""The scope of a search: the runs, steps, kinds, rewards, flags and labels of the searched completions."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, select
from sqlalchemy.orm import Session

from backend.base.errors import ExperimentNotFound, FieldError, InvalidRequest
from backend.metrics.attempts import load_limits, valid_row_condition
from backend.rollouts.marks import BIT_BY_MARK
from backend.rollouts.reading import RolloutFilter
from backend.storage.models import Experiment, GroupTally, RolloutGroup, RolloutLabel, Run
from backend.storage.run_lookup import require_run

MAX_RUNS = 500
"""Maximum number of runs of one search."""

MAX_STEPS = 500
"""Maximum number of steps to which a search is narrowed; with more, all steps are searched."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The completions that are searched."""

    runs: Sequence[str]
    first_step: int | None = None
    last_step: int | None = None
    kind: str = ""
    filter: RolloutFilter = field(default_factory=lambda: RolloutFilter(run=""))
    """Filter for completions; its run and step are not used."""
    label: str = ""
    steps: Sequence[int] | None = None
    """Steps that can match; None for all."""

    def group_conditions(self, session: Session) -> list[ColumnElement[bool]]:
        """Return SQL conditions on the groups that no later attempt hides."""
        conditions = self._table_conditions(RolloutGroup, session)
        if self.label:
            conditions.append(
                RolloutGroup.id.in_(select(RolloutLabel.group_id).where(*self._label_conditions()))
            )
        return conditions

    def tally_conditions(self, session: Session) -> list[ColumnElement[bool]]:
        """Return SQL conditions on the tallies of all stored groups of the runs, steps and kind."""
        is_stored = GroupTally.marks.bitwise_and(BIT_BY_MARK["stored"]) != 0
        return [*self._table_conditions(GroupTally, session), is_stored]

    def narrow(self, session: Session) -> "Scope":
        """Return the scope without the steps whose tallies show that they have no matching completion."""
        conditions = self.filter.tally_conditions()
        if not conditions or self.steps is not None:
            return self
        query = select(GroupTally.step).where(*self.tally_conditions(session), *conditions).distinct()
        steps = session.scalars(query.limit(MAX_STEPS + 1)).all()
        return self if len(steps) > MAX_STEPS else replace(self, steps=sorted(steps))

    def load_labelled_ids(self, session: Session) -> set[str]:
        """Return the ids of the completions that have the label."""
        return set(session.scalars(select(RolloutLabel.rollout_id).where(*self._label_conditions())))

    def _table_conditions(self, table: Any, session: Session) -> list[ColumnElement[bool]]:
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

    def restrict_to_run(self, run: str) -> "Scope":
        """Return the part of the scope that belongs to one run."""
        return replace(self, runs=[run])

    def restrict(self, *, first: int | None, last: int | None, correct: bool | None) -> "Scope":
        """Return the part of the scope between two steps, or with right or wrong completions."""
        starts = [step for step in (self.first_step, first) if step is not None]
        last_steps = [step for step in (self.last_step, last) if step is not None]
        new_filter = self.filter if correct is None else replace(self.filter, correct=correct)
        return replace(
            self,
            first_step=max(starts, default=None),
            last_step=min(last_steps, default=None),
            filter=new_filter,
        )


def valid_runs_condition(
    session: Session, runs: Sequence[str], table: Any = RolloutGroup
) -> ColumnElement[bool]:
    """Return the SQL condition that no later attempt hides a group of these runs, or its tally."""
    limits = load_limits(session, runs)
    if len(runs) == 1:  # avoids OR, which prevents the use of indexes
        return and_(table.run_id == runs[0], valid_row_condition(table, limits.get(runs[0], ())))
    unlimited_runs = [run for run in runs if not limits.get(run)]
    run_conditions = [
        and_(table.run_id == run, valid_row_condition(table, limits[run])) for run in runs if limits.get(run)
    ]
    return (
        or_(table.run_id.in_(unlimited_runs), *run_conditions)
        if run_conditions
        else table.run_id.in_(unlimited_runs)
    )


def find_runs(session: Session, runs: Sequence[str], experiment: str) -> Sequence[str]:
    """Return the named runs, or all runs of an experiment; raise NotFound, or InvalidRequest if neither is
    named.
    """
    if bool(runs) == bool(experiment):
        raise InvalidRequest([FieldError("runs", "name runs, or an experiment, and not both")])
    if experiment:
        if session.get(Experiment, experiment) is None:
            raise ExperimentNotFound(experiment)
        conditions = Run.experiment_id == experiment, Run.deleting_at.is_(None), Run.deleted_at.is_(None)
        runs = session.scalars(select(Run.id).where(*conditions).order_by(Run.id).limit(MAX_RUNS + 1)).all()
    if len(runs) > MAX_RUNS:
        raise InvalidRequest([FieldError("runs", f"a search covers at most {MAX_RUNS} runs")])
    if not experiment:
        for run in runs:
            require_run(session, run)
    return runs
