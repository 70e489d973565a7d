"""Determine the steps of printed rows, from the log or else from progress bars, epochs or line order."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from backend.exchange.imports.console.rows import NO_STEP, Rows, StepHint
from backend.exchange.imports.table import Ints

MIN_COVERED_SHARE = 0.9
"""Minimum share of the training rows that need a counter for it to be used as their step."""

MAX_DEVIATION = 0.35
"""Maximum deviation of an epoch from a multiple of the distance between lines, which detects rounding."""


class Steps(NamedTuple):
    """The step of each row, and a sentence about their source; empty if the rows contain them."""

    steps: Ints
    note: str


def steps_of_rows(rows: Rows, total: int | None, epochs: float | None) -> Steps:
    """Return the steps of one training's rows, given its numbers of steps and epochs if known."""
    hints = rows.hints
    if all(hint.is_eval for hint in hints):
        hints = [hint._replace(is_eval=False) for hint in hints]
    training = [number for number, hint in enumerate(hints) if not hint.is_eval]
    if 2 * sum(hints[number].step != NO_STEP for number in training) >= len(training):
        return Steps(_eval_with_training(hints, _read_named_steps(hints)), "")
    for count, note in _counters(hints, training, total, epochs):
        if count is not None:
            steps = np.full(len(hints), NO_STEP, np.int64)
            steps[training] = count
            return Steps(_eval_with_training(hints, steps), note)
    raise AssertionError("rows can always be counted")


def _counters(
    hints: list[StepHint], training: list[int], total: int | None, epochs: float | None
) -> list[tuple[Ints | None, str]]:
    """Return possible counters of the training rows, most reliable first."""
    training_clues = [hints[number] for number in training]
    bar_counts = _by_bar(training_clues)
    epoch, epoch_note = _by_epoch(training_clues, total, epochs)
    return [
        (
            _check_rising([hint.heading for hint in training_clues]),
            "The steps are the numbers above the metrics or at the start of their lines.",
        ),
        (
            bar_counts,
            "The log names no steps: they are those of the progress bar before each line of metrics.",
        ),
        (epoch, epoch_note),
        (
            _by_order(training_clues),
            "The log names no steps: its lines of metrics are counted in their order, from 1.",
        ),
    ]


def _read_named_steps(hints: Sequence[StepHint]) -> Ints:
    steps = np.array([hint.step for hint in hints], np.int64)
    updates = _updates_of_a_rollout(hints)
    if updates > 1:
        is_update = np.array([hint.counter == "step" for hint in hints])
        steps[is_update] //= updates
    return _over_epochs(hints, steps)


def _updates_of_a_rollout(hints: Sequence[StepHint]) -> int:
    """Return the number of updates per rollout, if the log counts both."""
    counts = {
        counter: 1 + max((hint.step for hint in hints if hint.counter == counter), default=-1)
        for counter in ("rollout", "step")
    }
    return max(1, round(counts["step"] / counts["rollout"])) if counts["rollout"] > 0 else 1


def _over_epochs(hints: Sequence[StepHint], steps: Ints) -> Ints:
    """Return continuous steps if they restart with each epoch."""
    is_numbered = steps != NO_STEP
    all_epochs = np.array([hint.epoch for hint in hints])
    epochs, numbers = all_epochs[is_numbered], steps[is_numbered]
    if len(numbers) < 2 or not np.isfinite(epochs).all() or (np.floor(epochs) != epochs).any():
        return steps
    is_next = np.diff(epochs) > 0
    is_restart = np.diff(numbers) <= 0
    if not is_next.any() or not is_restart[is_next].all():
        return steps
    is_from_zero = int(numbers.min()) == 0
    length = max((hint.total for hint in hints), default=0) or int(numbers.max()) + is_from_zero
    continuous_steps = steps.copy()
    continuous_steps[is_numbered] += (epochs - epochs.min()).astype(np.int64) * length
    return continuous_steps


def _eval_with_training(hints: Sequence[StepHint], steps: Ints) -> Ints:
    """Assign evaluations without a step to the step of the last training row."""
    last = next((int(step) for step in steps if step != NO_STEP), 0)
    for number, hint in enumerate(hints):
        if steps[number] == NO_STEP and hint.is_eval:
            steps[number] = last
        elif steps[number] != NO_STEP:
            last = int(steps[number])
    return steps


def order_of_rows(clues: Sequence[StepHint], steps: Ints) -> Ints:
    """Return the order in which an evaluation printed late follows the training rows up to its step.

    Without it, an evaluation that runs beside the training would look like a resume from an earlier step.
    """
    next_steps = _next_training_steps(clues, steps)
    positions = np.arange(len(clues), dtype=float)
    stretch_steps: list[int] = []
    stretch_rows: list[int] = []
    for row, (clue, step) in enumerate(zip(clues, steps.tolist(), strict=True)):
        is_backward = bool(stretch_steps) and step < stretch_steps[-1]
        if is_backward and clue.is_eval and next_steps[row] >= stretch_steps[-1]:
            positions[row] = stretch_rows[bisect_right(stretch_steps, step)] - 0.5
            continue
        if is_backward:
            stretch_steps, stretch_rows = [], []
        stretch_steps.append(step)
        stretch_rows.append(row)
    return np.argsort(positions, kind="stable")


def _next_training_steps(clues: Sequence[StepHint], steps: Ints) -> list[float]:
    """Return the step of the next training row for each row, infinity after the last one."""
    next_step, next_steps = float("inf"), []
    for clue, step in zip(reversed(clues), reversed(steps.tolist()), strict=True):
        next_steps.append(next_step)
        next_step = next_step if clue.is_eval else step
    return next_steps[::-1]


def _check_rising(counts: Sequence[int]) -> Ints | None:
    """Return the counts if all rows have one and they increase, apart from a few resumes; otherwise None."""
    steps = np.array(counts, np.int64)
    if not len(steps) or (steps == NO_STEP).any():
        return None
    backward = int((np.diff(steps) <= 0).sum())
    return steps if backward <= len(steps) // 50 else None


def _by_bar(hints: Sequence[StepHint]) -> Ints | None:
    """Return the counts of the progress bar that increases with the rows, or None."""
    totals = Counter(total for hint in hints for _, total in hint.bars)
    for total, _ in totals.most_common(8):
        counts = np.array(
            [
                next((count for count, bar_total in hint.bars if bar_total == total), NO_STEP)
                for hint in hints
            ],
            np.int64,
        )
        counted_rows = np.flatnonzero(counts != NO_STEP)
        if len(counted_rows) >= MIN_COVERED_SHARE * len(hints) and len(counted_rows):
            interpolated_counts = (
                np.interp(np.arange(len(hints)), counted_rows, counts[counted_rows]).round().astype(np.int64)
            )
            if (steps := _check_rising(interpolated_counts.tolist())) is not None and int(steps.max()) > 0:
                return steps
    return None


def _by_epoch(hints: Sequence[StepHint], total: int | None, epochs: float | None) -> tuple[Ints | None, str]:
    values = np.array([hint.epoch for hint in hints])
    if len(values) < 3 or not np.isfinite(values).all() or float(values.max()) <= 0:
        return None, ""
    if total and epochs:
        steps = _check_rising(np.maximum(1, np.round(values * total / epochs)).astype(np.int64).tolist())
        return (
            steps,
            f"The log names no steps: they are its epochs, of which {epochs:g} take {total:,} steps.",
        )
    distances = np.diff(np.unique(values))
    for unit in (float(np.median(distances)), float(distances.min())) if len(distances) > 1 else ():
        multiples = np.round(values / unit)
        max_deviation = float(np.abs(values / unit - multiples).max())
        if (
            max_deviation < MAX_DEVIATION
            and (steps := _check_rising(multiples.astype(np.int64).tolist())) is not None
        ):
            units = "" if unit == 1 else f", in units of {unit:.4g} of one epoch"
            return steps, f"The log names no steps: they are its epochs{units}."
    return None, ""


def _by_order(hints: Sequence[StepHint]) -> Ints:
    """Return the numbers of the rows from 1, per writer if several processes print the same rows."""
    counts = Counter(hint.writer for hint in hints)
    has_several_writers = len(counts) > 1 and min(counts.values()) >= MIN_COVERED_SHARE * max(counts.values())
    row_counts: Counter[str] = Counter()
    steps = []
    for hint in hints:
        writer = hint.writer if has_several_writers else ""
        row_counts[writer] += 1
        steps.append(row_counts[writer])
    return np.array(steps, np.int64)
