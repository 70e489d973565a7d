"""Compute text metrics of another trainer's completions, like those that our trainer logs."""

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
"""Number of characters at the end of a prompt or completion whose scripts are detected.

Prompts of other trainers may have megabytes, and they are read again for each of their completions.
"""

STEPS_AT_ONCE = 500
"""Maximum number of steps in one SQL statement."""

MAX_CACHED = 20_000
"""Number of stored completions whose measures are cached, because the next batch of a step needs them again.
"""

_remembered: OrderedDict[bytes, Measures] = OrderedDict()
_lock = threading.Lock()

CompletionsByPrompt = Mapping[int, Sequence[WrittenCompletion]]
"""Training completions of a step by the index of their prompt."""

Points = list[tuple[int, dict[str, float]]]


class TextPoints(NamedTuple):
    """Values of text/* by step, and the stored data from which they were computed."""

    points: Points
    stored_by_step: Mapping[int, tuple[set[int], dict[str, float]]]
    """Indexes of the stored prompts and the stored values of each step."""


def foreign_metrics(completions: Sequence[WrittenCompletion]) -> dict[str, float]:
    """Return the values of text/* for the training completions of a step."""
    return average_measures([_measure(completion) for completion in completions])


def _measure(completion: WrittenCompletion) -> Measures:
    return measure(completion, script_chars=SCRIPT_CHARS)


def is_cut(finish_reason: str) -> bool:
    """Return whether a completion was truncated at the token limit or has an unknown finish reason."""
    return finish_reason in {"", "length"}


def compute_text_points(
    session: Session, run_id: str, new_completions: Mapping[int, CompletionsByPrompt]
) -> TextPoints:
    """Return text/* for each step with new completions, over these and the stored completions of other
    prompts.

    A stored value that differs from the one computed from the stored completions was logged by the client and
    is left out. This takes a while and therefore happens before the transaction that stores the completions;
    `refresh_points` then updates the points within it.
    """
    logged_values = _stored_values(session, run_id, new_completions)
    points, stored_by_step = [], {}
    for step, completions_by_prompt in sorted(new_completions.items()):
        stored_measures = _stored_measures(session, run_id, step)
        own_values = average_measures(_flatten(stored_measures))
        client_names = {
            name
            for name, value in logged_values[step].items()
            if _is_client_value(value, own_values.get(name))
        }
        measures_by_prompt = {
            prompt_index: [_measure(completion) for completion in completions]
            for prompt_index, completions in completions_by_prompt.items()
        }
        metrics = average_measures(_flatten(stored_measures | measures_by_prompt))
        points.append((step, {name: value for name, value in metrics.items() if name not in client_names}))
        stored_by_step[step] = (set(stored_measures), logged_values[step])
    return TextPoints(points, stored_by_step)


def _flatten(measures_by_prompt: Mapping[int, Sequence[Measures]]) -> list[Measures]:
    return [measures for completions in measures_by_prompt.values() for measures in completions]


def _is_client_value(stored_value: float, computed_value: float | None) -> bool:
    """Return whether the client logged this value, because it differs from our value beyond rounding."""
    return computed_value is None or not math.isclose(
        stored_value, computed_value, rel_tol=1e-12, abs_tol=1e-15
    )


def refresh_points(
    session: Session,
    run_id: str,
    new_completions: Mapping[int, CompletionsByPrompt],
    computed_points: TextPoints,
) -> Points:
    """Return the points, recomputed for the steps whose stored data have changed in the meantime."""
    stored_positions, logged_values = (
        _stored_positions(session, run_id, new_completions),
        _stored_values(session, run_id, new_completions),
    )
    current_by_step = {
        step: (stored_positions.get(step, set()), logged_values[step]) for step in new_completions
    }
    outdated_steps = {
        step: new_completions[step]
        for step in new_completions
        if current_by_step[step] != computed_points.stored_by_step[step]
    }
    refreshed_points = dict(compute_text_points(session, run_id, outdated_steps).points)
    return [(step, refreshed_points.get(step, metrics)) for step, metrics in computed_points.points]


def _stored_positions(session: Session, run_id: str, steps: Collection[int]) -> dict[int, set[int]]:
    """Return the indexes of the stored training prompts of the steps."""
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
    """Return the stored values of text/* at the steps."""
    logged_values: dict[int, dict[str, float]] = {step: {} for step in steps}
    curves = read_curves(session, [run_id], METRICS, "step") if steps else {}
    for (_, metric), curve in curves.items():
        for step in np.intersect1d(curve.steps, list(steps)).tolist():
            logged_values[step][metric] = float(curve.values[np.searchsorted(curve.steps, step)])
    return logged_values


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
    """Return the measures of a completion, which are cached by its packed prompt and text."""
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
        while len(_remembered) > MAX_CACHED:
            _remembered.popitem(last=False)
    return measures
