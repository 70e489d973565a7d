"""Metrics of another trainer's completions as texts, as our own trainer logs them."""

import hashlib
import math
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.metrics.reading import read_curves
from backend.rollouts.packing import try_unpack_text
from backend.rollouts.text_metrics import METRICS, Measures, WrittenCompletion, average_measures, measure
from backend.storage.completions import iterate_completions
from backend.storage.models import RolloutGroup

SCRIPT_CHARS = 1024
"""Number of characters at the end of a prompt or completion whose letters are looked up one by one.

Another trainer's prompt may be megabytes long, and it is read again for each of its completions.
"""

STEPS_AT_ONCE = 500
"""Maximum number of steps that one statement names."""

REMEMBERED = 20_000
"""Stored completions whose measures this process keeps: the next batch of their step needs them again."""

_remembered: OrderedDict[bytes, Measures] = OrderedDict()
_lock = threading.Lock()

Places = Mapping[int, Sequence[WrittenCompletion]]
"""Training completions of a step by the place of their prompt."""

Points = list[tuple[int, dict[str, float]]]


class TextPoints(NamedTuple):
    """text/* by step, and what was stored when they were computed."""

    points: Points
    seen: Mapping[int, tuple[set[int], dict[str, float]]]
    """Places of each step's stored prompts, and the stored values."""


def foreign_metrics(written: Sequence[WrittenCompletion]) -> dict[str, float]:
    """text/* over the training completions of a step."""
    return average_measures([_measure(completion) for completion in written])


def _measure(written: WrittenCompletion) -> Measures:
    return measure(written, script_chars=SCRIPT_CHARS)


def is_cut(finish_reason: str) -> bool:
    """Return whether a completion was truncated at the cap, or its finish reason is unknown."""
    return finish_reason in {"", "length"}


def compute_text_points(session: Session, run_id: str, new: Mapping[int, Places]) -> TextPoints:
    """text/* of each step that gets new completions, over these and the stored ones of other places.

    A stored value that is not the one of the stored completions is the client's own, and stays. Computed
    before the transaction that stores the completions, as it takes a while: `refresh_points` then says
    what is right within it.
    """
    logged = _stored_values(session, run_id, new)
    points, seen = [], {}
    for step, places in sorted(new.items()):
        stored = _stored_measures(session, run_id, step)
        ours = average_measures(_flatten(stored))
        clients_names = {
            name for name, value in logged[step].items() if _is_client_value(value, ours.get(name))
        }
        fresh = {
            prompt_index: [_measure(completion) for completion in completions]
            for prompt_index, completions in places.items()
        }
        metrics = average_measures(_flatten(stored | fresh))
        points.append((step, {name: value for name, value in metrics.items() if name not in clients_names}))
        seen[step] = (set(stored), logged[step])
    return TextPoints(points, seen)


def _flatten(places: Mapping[int, Sequence[Measures]]) -> list[Measures]:
    return [measures for completions in places.values() for measures in completions]


def _is_client_value(stored: float, ours: float | None) -> bool:
    """Return whether the client logged this value: it differs from the computed one beyond rounding."""
    return ours is None or not math.isclose(stored, ours, rel_tol=1e-12, abs_tol=1e-15)


def refresh_points(session: Session, run_id: str, new: Mapping[int, Places], computed: TextPoints) -> Points:
    """Return the points, those computed again at whose step somebody else has stored something meanwhile."""
    stored, logged = _stored_positions(session, run_id, new), _stored_values(session, run_id, new)
    now = {step: (stored.get(step, set()), logged[step]) for step in new}
    behind = {step: new[step] for step in new if now[step] != computed.seen[step]}
    again = dict(compute_text_points(session, run_id, behind).points)
    return [(step, again.get(step, metrics)) for step, metrics in computed.points]


def _stored_positions(session: Session, run_id: str, steps: Collection[int]) -> dict[int, set[int]]:
    """Return the positions of the stored training prompts of some steps."""
    indices: dict[int, set[int]] = defaultdict(set)
    numbers = list(steps)
    for start in range(0, len(numbers), STEPS_AT_ONCE):
        chunk = numbers[start : start + STEPS_AT_ONCE]
        conditions = (
            RolloutGroup.run_id == run_id,
            RolloutGroup.step.in_(chunk),
            RolloutGroup.kind == "train",
        )
        for step, prompt_index in session.execute(
            select(RolloutGroup.step, RolloutGroup.prompt_index).where(*conditions)
        ):
            indices[step].add(prompt_index)
    return indices


def _stored_values(session: Session, run_id: str, steps: Collection[int]) -> dict[int, dict[str, float]]:
    """Return the stored values of text/* at some steps."""
    logged: dict[int, dict[str, float]] = {step: {} for step in steps}
    curves = read_curves(session, [run_id], METRICS, "step") if steps else {}
    for (_, metric), curve in curves.items():
        for step in np.intersect1d(curve.steps, list(steps)).tolist():
            logged[step][metric] = float(curve.values[np.searchsorted(curve.steps, step)])
    return logged


def _stored_measures(session: Session, run_id: str, step: int) -> dict[int, list[Measures]]:
    columns = (RolloutGroup.id, RolloutGroup.prompt_index, RolloutGroup.prompt)
    conditions = (RolloutGroup.run_id == run_id, RolloutGroup.step == step, RolloutGroup.kind == "train")
    groups = {row.id: row for row in session.execute(select(*columns).where(*conditions))}
    measures: dict[int, list[Measures]] = defaultdict(list)
    for group, completions in iterate_completions(session, list(groups)):
        measures[groups[group].prompt_index] += [
            _cached_measures(groups[group].prompt, completion.text, is_cut(completion.finish_reason))
            for completion in completions
        ]
    return dict(measures)


def _cached_measures(prompt: bytes, text: str, is_truncated: bool) -> Measures:  # noqa: FBT001
    """Measures of a completion to a packed prompt: once, however many batches its step comes in."""
    digest = hashlib.blake2b(prompt, digest_size=16)
    digest.update(
        len(prompt).to_bytes(8, "big") + bytes([is_truncated]) + text.encode("utf-8", "surrogatepass")
    )
    key = digest.digest()
    with _lock:
        if (measures := _remembered.get(key)) is not None:
            _remembered.move_to_end(key)
            return measures
    measures = _measure(WrittenCompletion(try_unpack_text(prompt)[0], text, is_truncated))
    with _lock:
        _remembered[key] = measures
        while len(_remembered) > REMEMBERED:
            _remembered.popitem(last=False)
    return measures
