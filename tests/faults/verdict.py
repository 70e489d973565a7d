"""The verdict on a run after a fault: nothing lost, and every value bit-equal to an undisturbed run."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.config.metrics import MACHINE_PREFIXES
from backend.metrics.attempts import load_limits, valid_row_condition
from backend.metrics.lineage import LineageSegment
from backend.metrics.windows import iterate_points, load_run_points
from backend.storage.completions import iterate_completions
from backend.storage.models import Attempt, RolloutGroup, Run
from backend.storage.numbers import to_stored
from tests.stored_points import stored_points

PULSE_METRIC = "tokens/total"
"""A metric that every step has."""

Record = dict[tuple[Any, ...], Any]


def read_record(session: Session, run_id: str) -> Record:
    """Return the metrics except for times, and the completions with rewards, that a run recorded."""
    limits = load_limits(session, [run_id]).get(run_id, ())
    (segment,) = load_run_points(session, [LineageSegment(run_id)])
    groups = {
        group.id: group
        for group in session.scalars(
            select(RolloutGroup).where(
                RolloutGroup.run_id == run_id, valid_row_condition(RolloutGroup, limits)
            )
        )
    }
    record: Record = {
        (point.name, point.step): to_stored(point.value)
        for point in iterate_points(session, segment)
        if not point.name.startswith(MACHINE_PREFIXES)
    }
    for completion in (
        completion
        for _, completions in iterate_completions(session, list(groups))
        for completion in completions
    ):
        group = groups[completion.group_id]
        key = ("completion", group.step, group.kind, group.prompt_index, completion.position)
        record[key] = (
            completion.text,
            completion.reward,
            completion.advantage,
            completion.tokens,
            completion.finish_reason,
        )
    return record


@dataclass
class Witness:
    """The commits before each fault, read from SQL, which must still exist at the end."""

    steps: dict[str, set[tuple[int, int]]] = field(default_factory=dict)
    """Pairs (step, attempt) of each run that were seen committed."""

    def observe(self, session: Session, run_ids: Iterable[str]) -> None:
        """Remember what is committed now."""
        for run_id in run_ids:
            for point in stored_points(session, run_id):
                if point.name == PULSE_METRIC:
                    self.steps.setdefault(run_id, set()).add((point.step, point.attempt))

    def lost(self, session: Session, run_id: str) -> int:
        """Return the number of steps seen committed that now have no row or no valid row."""
        committed_steps = self.steps.get(run_id, set())
        current = Witness()
        current.observe(session, [run_id])
        (segment,) = load_run_points(session, [LineageSegment(run_id)])
        valid = {point.step for point in iterate_points(session, segment)}
        vanished = len(committed_steps - current.steps.get(run_id, set()))
        return vanished + len({step for step, _ in committed_steps} - valid)


@dataclass
class Verdict:
    """The verdict on one or more disturbed runs."""

    runs: int = 0
    attempts: int = 0
    steps: int = 0
    """Number of steps of finished runs."""
    rows: int = 0
    """Number of metric values and completions that were compared."""
    lost: int = 0
    """Number of steps that were seen committed and no longer exist."""
    unequal: int = 0
    """Number of rows that differ from the uninterrupted run's, including missing and additional ones."""
    unfinished: int = 0
    double: int = 0
    """Number of runs that two attempts trained at the same time (I2 of the audit)."""
    sentences: list[str] = field(default_factory=list)
    """Findings of the audit, and the first differences."""

    @property
    def is_clean(self) -> bool:
        """True if the fault left no trace."""
        return not (self.lost or self.unequal or self.unfinished or self.double or self.sentences)


def judge(session: Session, witness: Witness, references: dict[str, Record], findings: list[str]) -> Verdict:
    """Compare each run with the record of the uninterrupted one. `findings` come from the audit."""
    verdict = Verdict(sentences=list(findings), double=len({s for s in findings if s.startswith("I2")}))
    for run_id, reference in references.items():
        run = session.get_one(Run, run_id)
        record = read_record(session, run_id)
        differing = [key for key in record.keys() | reference.keys() if record.get(key) != reference.get(key)]
        verdict.runs += 1
        verdict.attempts += len(session.scalars(select(Attempt).where(Attempt.run_id == run_id)).all())
        verdict.steps += run.last_step
        verdict.rows += len(reference)
        verdict.lost += witness.lost(session, run_id)
        verdict.unequal += len(differing)
        if run.status != "finished":
            verdict.unfinished += 1
            verdict.sentences.append(f"run {run_id} is {run.status}: {run.reason}")
        for key in sorted(differing, key=str)[:3]:
            expected, recorded = reference.get(key), record.get(key)
            verdict.sentences.append(f"run {run_id}: {key} is {recorded!r}, uninterrupted {expected!r}")
    return verdict
