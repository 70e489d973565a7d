"""Checkpoint retention: which checkpoints of a run stay when there is a new one.

The newest to continue from, the best by held-out accuracy, and some older ones. A policy that collapses is
noticed late: by then the newest are all of after it. The older ones are therefore spread evenly on a log
scale of age, so whenever the collapse was, one of not long before it is left, and the first always stays.
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
    """Held-out, at this step; None if it was not measured."""


def kept_ids(
    saved: Collection[SavedCheckpoint], *, keep: int, spaced: int, needed: Collection[int] = ()
) -> set[str]:
    """Return the ids of the checkpoints to keep. `needed` are steps that other runs begin with, or before
    an onset.
    """
    newest_first = sorted(saved, key=lambda checkpoint: (checkpoint.step, checkpoint.attempt), reverse=True)
    newest = newest_first[:keep]
    measured = [checkpoint for checkpoint in newest_first if checkpoint.accuracy is not None]
    best = max(measured, key=lambda checkpoint: checkpoint.accuracy or 0.0, default=None)
    stay = {checkpoint.id for checkpoint in newest} | {
        checkpoint.id for checkpoint in saved if checkpoint.step in needed or checkpoint is best
    }
    older = {
        checkpoint.step: checkpoint.id for checkpoint in reversed(newest_first) if checkpoint.id not in stay
    }  # the last attempt's
    steps = spread_steps(list(older), behind=[checkpoint.step for checkpoint in newest], limit=spaced)
    return stay | {older[step] for step in steps}


def max_kept_checkpoints(*, keep: int, spaced: int) -> int:
    """Return the largest number of checkpoints kept, not counting those that other runs start from.

    Nor those from before an onset, of which there are two at most.
    """
    return keep + spaced + 1


def spread_steps(steps: Sequence[int], *, behind: Sequence[int], limit: int) -> set[int]:
    """Return the steps to keep, `limit` at most, spread as evenly on a log scale of age as can be; the first
    stays.

    One step after the other is given up, each time the one whose neighbours are nearest to each other. As
    nothing but what stayed the last time is there the next time, this must and does work little by little.
    `behind` are the newest steps, which stay anyhow.
    """
    left = sorted(set(steps))
    if not limit or not left:
        return set()
    newest, nearest = max(behind, default=left[-1]), min(behind, default=left[-1])
    unit = min((after - before for before, after in pairwise([*left, nearest]) if after > before), default=1)
    while len(left) > limit:
        ages = [newest - step + unit for step in [*left, nearest]]
        ratios = [ages[index - 1] / ages[index + 1] for index in range(1, len(left))]
        del left[1 + ratios.index(min(ratios)) if ratios else 0]
    return set(left)
