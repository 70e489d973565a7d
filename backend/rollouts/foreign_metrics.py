"""Metrics of another trainer's completions as texts, as our own trainer logs them."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.db.completions import in_pieces
from backend.db.models import RolloutGroup
from backend.metrics.reading import read_curves
from backend.rollouts.packing import unpack_text
from backend.rollouts.text_metrics import METRICS, Written, text_metrics

SCRIPT_CHARS = 1024
"""Of the end of a prompt and of a completion, whose letters are looked up one by one: somebody else's prompt
may be megabytes long, and it is read anew for each of its completions."""

STEPS_AT_ONCE = 500
"""Named in one statement."""

Places = Mapping[int, Sequence[Written]]
"""Training completions of a step by the place of their prompt."""

Points = list[tuple[int, dict[str, float]]]


class TextPoints(NamedTuple):
    """text/* by step, and what was stored when they were computed."""

    points: Points
    seen: Mapping[int, set[int]]
    """Places of each step's stored prompts."""


def foreign_metrics(written: Sequence[Written]) -> dict[str, float]:
    """text/* over the training completions of a step."""
    return text_metrics(written, script_chars=SCRIPT_CHARS)


def is_cut(finish_reason: str) -> bool:
    """Whether a completion was cut at the cap, or nobody knows."""
    return finish_reason in {"", "length"}


def text_points(session: Session, run_id: str, new: Mapping[int, Places]) -> TextPoints:
    """text/* of each step that gets new completions, over these and the stored ones of other places.

    Where a step had no completions, its values are the log's own, and stay. Computed before the transaction
    that stores the completions, as it takes a while: `caught_up` then says what is right within it.
    """
    logged = _logged(session, run_id) if new else {}
    points, seen = [], {}
    for step, places in sorted(new.items()):
        stored = _stored(session, run_id, step)
        metrics = foreign_metrics([each for some in (stored | dict(places)).values() for each in some])
        own = {name for name, steps in logged.items() if step in steps} if not stored else set()
        points.append((step, {name: value for name, value in metrics.items() if name not in own}))
        seen[step] = set(stored)
    return TextPoints(points, seen)


def caught_up(session: Session, run_id: str, new: Mapping[int, Places], found: TextPoints) -> Points:
    """The points, those computed again at whose step somebody else has stored completions meanwhile."""
    stored = _places(session, run_id, new)
    behind = {step: new[step] for step in new if stored.get(step, set()) != found.seen[step]}
    again = dict(text_points(session, run_id, behind).points)
    return [(step, again.get(step, metrics)) for step, metrics in found.points]


def _places(session: Session, run_id: str, steps: Collection[int]) -> dict[int, set[int]]:
    """Places of the stored training prompts of some steps."""
    found: dict[int, set[int]] = defaultdict(set)
    numbers = list(steps)
    for start in range(0, len(numbers), STEPS_AT_ONCE):
        some = numbers[start : start + STEPS_AT_ONCE]
        here = (RolloutGroup.run_id == run_id, RolloutGroup.step.in_(some), RolloutGroup.kind == "train")
        for step, place in session.execute(select(RolloutGroup.step, RolloutGroup.prompt_index).where(*here)):
            found[step].add(place)
    return found


def _logged(session: Session, run_id: str) -> dict[str, set[int]]:
    curves = read_curves(session, [run_id], METRICS, "step")
    return {metric: set(curve.steps.tolist()) for (_, metric), curve in curves.items()}


def _stored(session: Session, run_id: str, step: int) -> dict[int, list[Written]]:
    columns = (RolloutGroup.id, RolloutGroup.prompt_index, RolloutGroup.prompt)
    here = (RolloutGroup.run_id == run_id, RolloutGroup.step == step, RolloutGroup.kind == "train")
    groups = {row.id: row for row in session.execute(select(*columns).where(*here))}
    found: dict[int, list[Written]] = defaultdict(list)
    for group, completions in in_pieces(session, list(groups)):
        prompt = unpack_text(groups[group].prompt)
        found[groups[group].prompt_index] += [
            Written(prompt, each.text, is_cut(each.finish_reason)) for each in completions
        ]
    return dict(found)
