"""Find completions that show the causes of a diagnosis, in the first stored step that has some."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from backend.analysis.diagnosis.diagnose import diagnose
from backend.analysis.diagnosis.store import load_log
from backend.rollouts.counting import mark_condition, valid_tally_conditions
from backend.rollouts.marks import BIT_BY_MARK, parse_marks
from backend.storage.models import GroupTally

SHOWN_BY: dict[str, tuple[tuple[str, ...], ...]] = {
    "length_blowup": (("truncated",),),
    "repetition": (("repetitive",),),
    "broken_format": (("unparsed",), ("flagged",)),
    "language_mix": (("language",),),
    "reward_hacking": (("wrong", "rewarded"),),
    "vanishing_signal": (("same_reward",),),
    "verifier": (("wrong",),),
    "overfitting": (("wrong",),),
    "length_collapse": (("wrong",),),
    "entropy_explosion": (("wrong",),),
}
"""Marks of the completions that show a cause, most specific first; any completions show other causes."""

HELD_OUT_CAUSES = frozenset({"overfitting"})
"""Causes that are visible in the evaluations."""


def load_evidence(session: Session, run_id: str) -> list[dict[str, Any]]:
    """Return the steps that show the causes of a run, after the step of its onset, which has the cause ""."""
    diagnosis = diagnose(load_log(session, run_id))
    if diagnosis.onset is None:
        return []
    onsets = [("", diagnosis.onset.sick)]
    onsets += [(cause.finding.cause, cause.finding.onset.sick) for cause in diagnosis.causes]
    items = (_evidence_json(session, run_id, cause, sick_step) for cause, sick_step in onsets)
    return [item for item in items if item is not None]


def _evidence_json(session: Session, run_id: str, cause: str, sick_step: int) -> dict[str, Any] | None:
    """Return the first stored step since the onset with completions that have the marks, or else with any."""
    kind = "eval" if cause in HELD_OUT_CAUSES else "train"
    for marks in (*SHOWN_BY.get(cause, ()), ()):
        if (first_step := _first_step(session, run_id, kind, marks, sick_step)) is not None:
            return {"cause": cause, "kind": kind, "marks": list(marks)} | first_step
    return None


def _first_step(
    session: Session, run_id: str, kind: str, marks: Sequence[str], sick_step: int
) -> dict[str, int] | None:
    """Return the first step with stored completions that have all marks, and their number, or None."""
    query = (
        select(GroupTally.step, func.sum(GroupTally.completions).label("completions"))
        .where(*valid_tally_conditions(session, run_id, kind), GroupTally.step >= sick_step)
        .where(mark_condition(parse_marks(marks) | BIT_BY_MARK["stored"]))
        .group_by(GroupTally.step)
        .order_by(GroupTally.step)
        .limit(1)
    )
    row = session.execute(query).one_or_none()
    return None if row is None else {"step": row.step, "completions": int(row.completions)}
