"""Outcomes of the second round: each expectation ends as reproduced, refuted or undecided. Pure.

Two hypotheses are tested of each difference, in the direction of the claim and paired by seed: that there is
none, and that it is as large as the smallest one that would matter (the margin). Rejecting the first
reproduces a claim, rejecting the second refutes it. An interval narrower than the margin always decides.
Intervals and Holm's correction are those of the ablation matrix.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from backend.experiments.matrix.inference import ALPHA, Contrast, contrast, holm
from backend.metrics.student import critical
from benchmarks.evidence.claim import Expectation

Word = Literal["reproduced", "refuted", "undecided"]

MOST_SEEDS = 1000


@dataclass(frozen=True, slots=True)
class Outcome:
    """A word and what it rests on."""

    word: Word
    found: Contrast
    """The difference in units of the measure, `higher` minus `lower`."""
    seeds: int | None = None
    """Of an undecided claim: seeds with which the interval is narrower than the margin."""


def outcomes(
    asked: Sequence[tuple[Expectation, Mapping[int, float], Mapping[int, float]]],
) -> list[Outcome | None]:
    """Outcomes of the expectations of one claim, each with the values of both sides by seed.

    None where a side has no values, or they do not vary. P-values are corrected over the claim.
    """
    found = [contrast(higher, lower, "planned") for _, higher, lower in asked]
    shifted = [
        contrast({seed: value - expected.margin for seed, value in higher.items()}, lower, "planned")
        for expected, higher, lower in asked
    ]
    of_none = holm([None if each is None else each.p for each in found])
    of_margin = holm([None if each is None else each.p for each in shifted])
    return [
        None if each is None or none is None or margin is None else _outcome(expected, each, none, margin)
        for (expected, _, _), each, none, margin in zip(asked, found, of_none, of_margin, strict=True)
    ]


def _outcome(expected: Expectation, found: Contrast, of_none: float, of_margin: float) -> Outcome:
    low, high = sorted((0.0, expected.margin))
    p_low, p_high = (of_none, of_margin) if expected.margin > 0 else (of_margin, of_none)
    if p_low <= ALPHA and found.mean > low:
        return Outcome("reproduced", found)
    if p_high <= ALPHA and found.mean < high:
        return Outcome("refuted", found)
    return Outcome("undecided", found, _seeds(found, abs(expected.margin)))


def _seeds(found: Contrast, margin: float) -> int | None:
    """The least number of pairs whose 95 % interval is narrower than a margin, at the spread seen."""
    if found.std is None:
        return None
    widths = ((n, 2 * critical(ALPHA, n - 1) * found.std / math.sqrt(n)) for n in range(2, MOST_SEEDS))
    return next((n for n, width in widths if width <= margin), None)
