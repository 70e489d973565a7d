"""Breakdowns, signal budgets and mismatches as the HTTP interface shows them."""

from typing import Literal

from backend.base.documented import Documented


class BreakdownWindow(Documented):
    """A window of steps, and the metric in it."""

    first: int
    last: int
    steps: int
    """Steps with a finite value."""
    value: float
    """Mean of these values."""


class BreakdownSide(Documented):
    """A category within a window."""

    share: float
    """Category's share of the window's mean."""
    mean: float | None
    """Mean over the category's completions; null if there are none."""
    completions: int


class BreakdownExample(Documented):
    """A stored group to read."""

    window: Literal["before", "after"]
    step: int
    group: str


class BreakdownRow(Documented):
    """A category's part of a metric's change."""

    kind: Literal["category", "others", "not_stored"]
    label: str
    prompt: str
    """First characters of the prompt, if the category is one prompt or group."""
    marks: list[str]
    """Marks that all completions of the category have, if it is defined by flags."""
    before: BreakdownSide
    after: BreakdownSide
    value: float
    """Part of the change by another mean of its completions."""
    share: float
    """Part of the change by another share of them."""
    total: float
    examples: list[BreakdownExample]


class BreakdownAnswer(Documented):
    """The change of a metric between two windows as the sum of its rows."""

    run: str
    metric: str
    by: Literal["prompt", "group", "flag", "length", "term"]
    before: BreakdownWindow
    after: BreakdownWindow
    change: float
    completions: int
    """Completions that are attributed."""
    of: int
    """Completions that were sampled in both windows."""
    notes: list[str]
    rows: list[BreakdownRow]
    """The largest parts first, then all others as one, and what is not stored."""


class BudgetBin(Documented):
    """Sums over a stretch of steps, in the order of the budget's parts."""

    first: int
    last: int
    completions: list[float] | None = None
    tokens: list[float] | None = None
    seconds: list[float] | None = None


class SignalBudget(Documented):
    """The parts of what a run sampled, by whether it moved the policy and why not."""

    run: str
    source: Literal["trainer", "rollouts", ""]
    """`trainer`: logged of all completions; `rollouts`: from their marks, for a run that did not log it, and
    without seconds; empty: there is nothing to count."""
    parts: list[str]
    steps: int
    """Steps that are counted."""
    totals: dict[Literal["completions", "tokens", "seconds"], list[float]]
    """Totals by unit, in the order of `parts`; an unknown unit is omitted."""
    bins: list[BudgetBin]


class SignalBudgets(Documented):
    """The signal budgets of some runs."""

    items: list[SignalBudget]
    next: None


class CapItem(Documented):
    """The weights of a step's stored tokens under one cap."""

    cap: float
    limited: float
    """Share of the tokens whose weight was truncated, or dropped by a mask."""
    mean: float
    """Mean weight."""
    ess: float
    """Effective sample size as a share of the tokens."""
    lost: float
    """Share of the untruncated weight that is gone: what the correction leaves biased."""


class Mismatch(Documented):
    """The stored tokens of a step by sampler and trainer, and what each cap does to their weights."""

    run: str
    step: int
    kind: Literal["token_tis", "token_mask", "seq_tis", "seq_mask"]
    level: Literal["product", "geo"]
    """rho of a completion: the product or the geometric mean of its tokens'."""
    low: float | None
    """Smallest rho that a mask lets through."""
    own_cap: float | None
    """The run's cap; null if the run uses another correction."""
    tokens: int
    completions: int
    groups: int
    """Stored groups that trained."""
    of_groups: int
    """Stored groups."""
    caps: list[CapItem]
    sampler: list[float]
    """Log-probabilities of tokens for a scatter plot, sampled at random if there are many."""
    trainer: list[float]
    position: list[int]
    age: list[int]
    """Steps by which the weights were old that sampled the token."""
