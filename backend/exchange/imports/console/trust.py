"""Decide whether rows that a label calls an evaluation are one, from the rows of the training around them."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from backend.exchange.imports.console.rows import NO_STEP, TRAINING, Rows, StepHint
from backend.exchange.imports.names import metric_of_name
from backend.exchange.imports.splits import is_of_training_or_evaluation, move_held_out_rows
from backend.exchange.imports.table import Table

BELOW_HEADING = ":"
"""End of the label of a row that has none of its own."""
MAX_COMPARED_ROWS = 2_000
"""Maximum number of rows of a label that are compared with the training."""
MAX_NEIGHBOURS = 16
"""Maximum number of rows of the training before and after a row that it is compared with."""
MAX_STEPS_LATE = 6
"""Number of steps of the training after which an evaluation may be printed."""
MAX_SPARSE_SHARE = 0.5
"""Maximum number of steps with an evaluation, as a share of those of the training, for it to be rare."""
MIN_EXPLICIT_SHARE = 0.9
"""Minimum share of the training's rows with the label `train` for the other labels to be trusted."""
_ESSENTIAL_METRICS = ("reward/mean", "length/mean", "loss/", "kl/", "policy/entropy")
"""Metrics that every training has, unlike an accuracy."""

Position = tuple[int, float]


def resolve_tags(rows: Rows) -> None:
    """Decide for each label whether its rows are of an evaluation, and mark them.

    They are if two thirds of them repeat metrics of a row of the training of the same step close by, or lie
    off its regular steps. A label that would take metrics from the training is not trusted: `[test]` may be
    the name of an experiment, and `[evaluate]` may print the rewards of the training.
    """
    training = [n for n, hint in enumerate(rows.hints) if hint.tag in {"", TRAINING} and not hint.is_eval]
    by_tag: dict[str, list[int]] = {}
    for number, hint in enumerate(rows.hints):
        if hint.tag not in {"", TRAINING}:
            by_tag.setdefault(hint.tag, []).append(number)
    if not by_tag or not training:
        return
    evidence = _Evidence(rows, training)
    trusted_tags = {tag for tag, tagged_rows in by_tag.items() if evidence.is_evaluation(tagged_rows)}
    suites = {hint.suite for hint in rows.hints if hint.tag in trusted_tags}
    for number, hint in enumerate(rows.hints):
        if hint.tag in trusted_tags:
            rows.hints[number] = hint._replace(is_eval=True, suite=hint.suite if len(suites) > 1 else "")


def move_evaluations(table: Table, hints: Sequence[StepHint]) -> None:
    """Move the values of rows of an evaluation to columns of their own, for each set of problems."""
    for suite in sorted({hint.suite for hint in hints if hint.is_eval}):
        is_of_suite = [hint.is_eval and hint.suite == suite for hint in hints]
        move_held_out_rows(table, np.array(is_of_suite, bool), suite)


class _Evidence:
    """The rows of the training that a label's rows are compared with."""

    def __init__(self, rows: Rows, training: list[int]) -> None:
        self._hints = rows.hints
        self._training = np.array(training, np.int64)
        self._metrics_by_row = metrics_by_row(rows)
        self._training_metrics = {metric for number in training for metric in self._metrics_by_row[number]}
        self._positions = {_position(rows.hints[number]) for number in training}
        tag_counts = Counter(rows.hints[number].tag for number in training)
        self._is_explicit = tag_counts[TRAINING] >= MIN_EXPLICIT_SHARE * len(training)
        self._first_step, self._distance = _regular_steps(
            rows.hints[number].step for number in training if rows.hints[number].step != NO_STEP
        )

    def is_evaluation(self, tagged_rows: list[int]) -> bool:
        """Return whether the rows of a label are of an evaluation."""
        positions = {_position(self._hints[number]) for number in tagged_rows}
        may_be_off_grid = len(positions) <= len(self._positions)
        compared_rows = tagged_rows[:: 1 + len(tagged_rows) // MAX_COMPARED_ROWS]
        repeated_count = taken_count = 0
        for number in compared_rows:
            is_off_grid = may_be_off_grid and self._is_off_grid(self._hints[number].step)
            if is_off_grid or self._repeats_training(number):
                repeated_count += 1
            elif not self._training_metrics.isdisjoint(self._metrics_by_row[number]):
                taken_count += 1
        if 2 * taken_count > repeated_count and not self._is_explicit:
            return False
        if len(positions) <= MAX_SPARSE_SHARE * len(self._positions):
            return True
        metrics = {metric for number in compared_rows for metric in self._metrics_by_row[number]}
        return not any(metric.startswith(_ESSENTIAL_METRICS) for metric in metrics - self._training_metrics)

    def _repeats_training(self, number: int) -> bool:
        """Return whether a row of the training close by has the same step and one of the same metrics.

        Without steps, the rows of the training before and after it have. A row below a heading, which may be
        the end of a completion, must also have other metrics than they.
        """
        position, metrics = _position(self._hints[number]), self._metrics_by_row[number]
        if position == _NO_POSITION:
            index = int(np.searchsorted(self._training, number))
            neighbours = self._training[max(0, index - 1) : index + 1].tolist()
            is_repeated = all(not metrics.isdisjoint(self._metrics_by_row[row]) for row in neighbours)
            is_same = self._hints[number].tag.endswith(BELOW_HEADING) and any(
                metrics == self._metrics_by_row[row] for row in neighbours
            )
            return is_repeated and not is_same
        return any(
            _position(self._hints[neighbour]) == position
            and not metrics.isdisjoint(self._metrics_by_row[neighbour])
            for neighbour in self._neighbours(number)
        )

    def _neighbours(self, number: int) -> Iterator[int]:
        """Yield the rows of the training that are at most a few steps before a row, or one after it."""
        index = int(np.searchsorted(self._training, number))
        before = self._training[max(0, index - MAX_NEIGHBOURS) : index][::-1].tolist()
        after = self._training[index : index + MAX_NEIGHBOURS].tolist()
        yield from self._first_positions(before, MAX_STEPS_LATE)
        yield from self._first_positions(after, 1)

    def _first_positions(self, numbers: Sequence[int], max_positions: int) -> Iterator[int]:
        positions: set[Position] = set()
        for number in numbers:
            positions.add(_position(self._hints[number]))
            if len(positions) > max_positions:
                return
            yield number

    def _is_off_grid(self, step: int) -> bool:
        return self._distance > 1 and step != NO_STEP and (step - self._first_step) % self._distance != 0


_NO_POSITION = (NO_STEP, math.inf)


def _position(hint: StepHint) -> Position:
    """Return the step and epoch of a row; the epoch is infinite if there is none."""
    return hint.step, math.inf if math.isnan(hint.epoch) else hint.epoch


def _regular_steps(steps: Iterable[int]) -> tuple[int, int]:
    """Return the first step and the distance of regular steps; the distance is 1 if they are not regular."""
    unique_steps = np.unique(np.fromiter(steps, np.int64))
    if len(unique_steps) < 3:
        return 0, 1
    distances = np.diff(unique_steps)
    distance = int(np.median(distances))
    is_regular = (distances == distance).mean() >= MIN_EXPLICIT_SHARE
    return int(unique_steps[0]), distance if is_regular else 1


def metrics_by_row(rows: Rows) -> list[frozenset[str]]:
    """Return the metrics of each row; rows with the same metrics share a set."""
    sets: dict[tuple[str, ...], frozenset[str]] = {}
    names_by_row: list[tuple[str, ...]] = [()] * len(rows)
    for name, column in rows.table.columns.items():
        if not is_of_training_or_evaluation(name):
            continue
        metric = metric_of_name(name)
        for number in column.rows:
            names_by_row[number] += (metric,)
    return [sets.setdefault(names, frozenset(names)) for names in names_by_row]
