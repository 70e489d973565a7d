"""Claims as values: what is varied, what is measured and what the source says should come out."""

from collections.abc import Mapping
from typing import Any, Literal

from backend.config.base import Frozen

How = Literal["last", "first", "end", "mean", "max", "at_tokens"]
END_STEPS = 10
"""Steps whose mean is the value at the end."""


class Measure(Frozen):
    """One number of a run."""

    title: str
    """Head of its column."""
    metric: str
    how: How = "end"
    """last, first: that recorded value; end: mean of the last 10 steps; mean, max: over all steps; at_tokens:
    interpolated where every run of the claim still trains, in generated tokens."""
    percent: bool = False


class Expectation(Frozen):
    """What the source says: `higher` has more of a measure than `lower`."""

    measure: str
    """Title of the measure."""
    higher: str
    lower: str
    margin: float = 0.0
    """The smallest difference that would matter, in units of the metric: an interval below it refutes the
    claim. Negative: the claim is that nothing of that size is lost."""
    asks_again: str = ""
    """The undecided expectation of the first round that this one replaces: claim and number, e.g. `a 1`."""


class Claim(Frozen):
    """One claim of a paper or of the book, tried on the tiny policy."""

    title: str
    says: str
    """What the source claims, and which setting makes its mechanism act here."""
    base: Mapping[str, Any]
    """Fields of RunConfig that all variants share."""
    variants: Mapping[str, Mapping[str, Any]]
    measures: tuple[Measure, ...]
    expects: tuple[Expectation, ...] = ()
    seeds: int = 5
    first_seed: int = 0
    """The second round has seeds of its own, so that no run counts twice."""
