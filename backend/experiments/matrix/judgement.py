"""Judge each cell of the matrix: what can be claimed about its difference from the baseline, or why nothing
can.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from backend.config.metrics import find_metric
from backend.experiments.matrix.inference import (
    ALPHA,
    MIN_AT_ANY_TIME,
    MIN_SEEDS,
    Contrast,
    Looks,
    contrast,
    holm_correction,
    seeds_needed,
)
from backend.experiments.matrix.readings import THRESHOLDS, Column
from backend.metrics.statistics import MAX_FINITE

UNTESTED = ("baseline", "not comparable")
"""Verdicts of cells that are not tested, and thus not counted in the correction of p-values."""

MAX_MORE_SEEDS = 20
"""Maximum number of additional seeds that are suggested; beyond it the verdict is `no difference shown`."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The values of a row in one column."""

    name: str
    values: Mapping[int, float | None]
    """Value by seed; None if there is no value, NaN if it is not finite."""
    ended_seeds: set[int]
    """Seeds whose runs have ended; other seeds are not used in differences."""
    unrecorded: Mapping[int, str]
    """Missing metric by seed, for runs that do not record the metric of the column."""
    reached_count: int | None
    """Number of runs that reached the threshold of the column; None without a threshold, or if unknown."""

    def usable_values(self) -> dict[int, float]:
        """Return the finite values of runs that have ended."""
        values = ((seed, self.values[seed]) for seed in self.ended_seeds)
        return {seed: value for seed, value in values if value is not None and abs(value) < MAX_FINITE}


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on a cell, and the contrast behind it."""

    verdict: str
    reason: str = ""
    versus: Contrast | None = None
    p_corrected: float | None = None
    more_seeds: int | None = None
    reached: int | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the fields of `schemas.MatrixCell`."""
        versus = None
        if self.versus is not None:
            versus = asdict(self.versus) | {"p_corrected": self.p_corrected}
            del versus["std"]
        return {
            "versus": versus,
            "verdict": self.verdict,
            "reason": self.reason,
            "more_seeds": self.more_seeds,
            "reached": self.reached,
        }


def judge(
    entries: Mapping[Column, Sequence[Entry]],
    *,
    baseline: int,
    looks: Looks,
    planned_seeds: int | None,
    incomparable_reasons: Mapping[tuple[Column, int], str],
) -> dict[tuple[Column, int], Judgement]:
    """Return a judgement of each cell, by column and row.

    `incomparable_reasons` contains the reason why each cell cannot be compared; empty if it can. P-values are
    corrected over all cells that are compared with the baseline, including those without a claim.
    """
    contrasts: dict[tuple[Column, int], Contrast | None] = {}
    reasons: dict[tuple[Column, int], str] = {}
    for column, rows in entries.items():
        base = rows[baseline]
        for index, entry in enumerate(rows):
            cell = column, index
            if index == baseline or incomparable_reasons[cell]:
                continue
            contrasts[cell] = contrast(entry.usable_values(), base.usable_values(), looks)
            reasons[cell] = (
                _missing_values_reason(column, entry, planned_seeds)
                or _missing_values_reason(column, base, planned_seeds)
                or _untestable_reason(contrasts[cell], looks)
            )
    tested_p_values = [
        None if (reasons[cell] or contrast_ is None) else contrast_.p for cell, contrast_ in contrasts.items()
    ]
    corrected_p_values = dict(zip(contrasts, holm_correction(tested_p_values), strict=True))
    claimed_count = sum(p is not None and p <= ALPHA for p in corrected_p_values.values())
    corrected_alpha = ALPHA / max(1, len(contrasts) - claimed_count)
    judgements = {}
    for column, rows in entries.items():
        for index, entry in enumerate(rows):
            cell = column, index
            if cell not in contrasts:
                judgement = _untested_judgement(incomparable_reasons[cell])
            elif reasons[cell]:
                judgement = _unclaimed_judgement(
                    contrasts[cell], reasons[cell], planned_seeds, entry, rows[baseline]
                )
            else:
                judgement = _tested_judgement(
                    column, contrasts[cell], corrected_p_values[cell], corrected_alpha
                )
            judgements[cell] = replace(judgement, reached=entry.reached_count)
    return judgements


def _untested_judgement(incomparable_reason: str) -> Judgement:
    """Return the judgement without a test, for the baseline itself or a metric on another scale."""
    return Judgement("not comparable", incomparable_reason) if incomparable_reason else Judgement("baseline")


def _unclaimed_judgement(
    contrast_: Contrast | None, reason: str, planned_seeds: int | None, entry: Entry, base: Entry
) -> Judgement:
    """Return a judgement without a claim, with the missing seeds if there are too few and none are in
    progress.
    """
    is_waiting = (
        planned_seeds is not None and min(len(entry.ended_seeds), len(base.ended_seeds)) < planned_seeds
    )
    is_short = contrast_ is not None and contrast_.low is None and contrast_.n < MIN_AT_ANY_TIME
    more_seeds = (
        MIN_AT_ANY_TIME - contrast_.n if contrast_ is not None and is_short and not is_waiting else None
    )
    return Judgement("no claim", reason, contrast_, more_seeds=more_seeds)


def _tested_judgement(
    column: Column, contrast_: Contrast | None, p: float | None, corrected_alpha: float
) -> Judgement:
    if contrast_ is None:
        return Judgement("no claim", "There is nothing to compare.")
    if p is not None and p <= ALPHA:
        return Judgement(_claim_word(column, contrast_.mean), "", contrast_, p)
    needed_seeds = seeds_needed(contrast_, corrected_alpha)
    more_seeds = None if needed_seeds is None else max(1, needed_seeds - contrast_.n)
    verdict = (
        "more seeds" if more_seeds is not None and more_seeds <= MAX_MORE_SEEDS else "no difference shown"
    )
    return Judgement(verdict, "", contrast_, p, more_seeds)


def _claim_word(column: Column, mean: float) -> str:
    metric_info = find_metric(column.metric)
    direction = column.better_direction(metric_info.better if metric_info else "")
    if not direction:
        return "higher" if mean > 0 else "lower"
    return "better" if (mean > 0) == (direction == "up") else "worse"


def _missing_values_reason(column: Column, entry: Entry, planned_seeds: int | None) -> str:
    """Return a sentence why nothing can be claimed about this row; empty if there is no such reason."""
    ended_values = [entry.values[seed] for seed in entry.ended_seeds]
    if planned_seeds is not None and len(ended_values) < planned_seeds:
        progress = f"{len(ended_values)} of {planned_seeds} planned seeds of {entry.name} have finished"
        return f"{progress}: not tested until all have finished."
    if not ended_values:
        return f"No run of {entry.name} has finished yet."
    missing_count = sum(value is None for value in ended_values)
    if missing_count and column.reading in THRESHOLDS:
        unrecorded_metrics = [
            entry.unrecorded[seed] for seed in sorted(entry.ended_seeds) if seed in entry.unrecorded
        ]
        if unrecorded_metrics:
            names = " or ".join(dict.fromkeys(unrecorded_metrics))
            return (
                f"{len(unrecorded_metrics)} of {len(ended_values)} runs of {entry.name} "
                f"do not record {names}."
            )
        return (
            f"{missing_count} of {len(ended_values)} runs of {entry.name} never reached {column.threshold:g}."
        )
    if missing_count == len(ended_values):
        return f"{entry.name} has no value here."
    if missing_count:
        explanation = f"{missing_count} of {len(ended_values)} runs of {entry.name} have no value here"
        return f"{explanation}: the others are not representative."
    if not_finite := sum(
        math.isnan(value) or abs(value) >= MAX_FINITE for value in ended_values if value is not None
    ):
        return (
            f"{not_finite} of {len(ended_values)} runs of {entry.name} end with a value that is not finite: "
            "a mean without them is too optimistic."
        )
    return ""


def _untestable_reason(contrast_: Contrast | None, looks: Looks) -> str:
    if contrast_ is None or (contrast_.p is not None and contrast_.low is not None):
        return ""
    if contrast_.n < MIN_SEEDS:
        return "One seed says nothing about how far another one would lie."
    if contrast_.p is None:
        return "The differences do not vary over the seeds, so nothing says how far another one would lie."
    return f"An always-valid interval needs {MIN_AT_ANY_TIME} seeds; there are {contrast_.n}."
