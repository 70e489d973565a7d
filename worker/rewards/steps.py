"""Process rewards: split a completion into steps, and aggregate their scores."""

import math
from collections.abc import Callable, Sequence

MAX_STEPS = 256
"""Maximum number of steps of a completion. Additional text belongs to the last step."""


def _sum(scores: Sequence[float]) -> float:
    try:
        return math.fsum(scores)
    except OverflowError:
        return math.inf


AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "min": min,
    "mean": lambda scores: _sum(scores) / len(scores),
    "last": lambda scores: scores[-1],
    "product": math.prod,
    "sum": _sum,
}
"""Aggregation functions of finite scores. The result is infinite if it exceeds the range of floats."""


def split_steps(text: str, delimiter: str) -> list[str]:
    """Return the steps of a completion without surrounding space and without blank steps."""
    segments = [segment.strip() for segment in text.split(delimiter)]
    steps = [segment for segment in segments if segment]
    return (
        [*steps[: MAX_STEPS - 1], delimiter.join(steps[MAX_STEPS - 1 :])] if len(steps) > MAX_STEPS else steps
    )
