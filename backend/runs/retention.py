"""Checkpoint retention: which checkpoints of a run are kept when a new one is saved.

These are the newest checkpoints, the best by held-out accuracy, and some older ones. The collapse of a policy
is often noticed late, when the newest checkpoints were all saved after it. The older ones are therefore
spread evenly on a log scale of age, so that one from shortly before the collapse remains. The first always
stays.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import NamedTuple


class SavedCheckpoint(NamedTuple):
    """The facts about a checkpoint that retention needs."""

    id: str
    step: int
    attempt: int
    accuracy: float | None
    """Held-out accuracy at this step; None if it was not measured."""


def choose_kept_ids(
    checkpoints: Collection[SavedCheckpoint], *, keep: int, spaced: int, needed_steps: Collection[int] = ()
) -> set[str]:
    """Return the ids of the checkpoints to keep, including those of the `needed_steps` steps."""
    newest_first = sorted(
        checkpoints, key=lambda checkpoint: (checkpoint.step, checkpoint.attempt), reverse=True
    )
    newest = newest_first[:keep]
    measured_checkpoints = [checkpoint for checkpoint in newest_first if checkpoint.accuracy is not None]
    best = max(measured_checkpoints, key=lambda checkpoint: checkpoint.accuracy or 0.0, default=None)
    retained_ids = {checkpoint.id for checkpoint in newest} | {
        checkpoint.id for checkpoint in checkpoints if checkpoint.step in needed_steps or checkpoint is best
    }
    older = {
        checkpoint.step: checkpoint.id
        for checkpoint in reversed(newest_first)
        if checkpoint.id not in retained_ids
    }  # the checkpoint of the last attempt
    steps = spread_steps(list(older), newest_steps=[checkpoint.step for checkpoint in newest], limit=spaced)
    return retained_ids | {older[step] for step in steps}


def max_kept_checkpoints(*, keep: int, spaced: int) -> int:
    """Return the maximum number of checkpoints kept, without those that other runs start from.

    Up to two checkpoints from before an onset are not counted either.
    """
    return keep + spaced + 1


def spread_steps(steps: Sequence[int], *, newest_steps: Sequence[int], limit: int) -> set[int]:
    """Return the steps to keep, at most `limit`, spread as evenly as possible on a log scale of age.

    Steps are removed one by one, always the one whose neighbours are closest to each other. The first step
    stays. The function is called with the steps that remained the last time, so the result must also be good
    when it is built up incrementally. `newest_steps` are the newest steps, which stay in any case.
    """
    remaining_steps = sorted(set(steps))
    if not limit or not remaining_steps:
        return set()
    newest, nearest = (
        max(newest_steps, default=remaining_steps[-1]),
        min(newest_steps, default=remaining_steps[-1]),
    )
    unit = min(
        (later - earlier for earlier, later in pairwise([*remaining_steps, nearest]) if later > earlier),
        default=1,
    )
    while len(remaining_steps) > limit:
        ages = [newest - step + unit for step in [*remaining_steps, nearest]]
        ratios = [ages[index - 1] / ages[index + 1] for index in range(1, len(remaining_steps))]
        del remaining_steps[1 + ratios.index(min(ratios)) if ratios else 0]
    return set(remaining_steps)
