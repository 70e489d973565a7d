"""Schemas of breakdowns, signal budgets and mismatches for the HTTP API."""

from typing import Literal

from backend.base.documented import Documented


class BreakdownWindow(Documented):
    """A window of steps and the metric in it."""

    first: int
    last: int
    steps: int
    """Number of steps with a finite value."""
    value: float
    """Mean of the finite values."""


class BreakdownSide(Documented):
    """A category in one window."""

    share: float
    """Share of the category in the mean of the window."""
    mean: float | None
    """Mean over the completions of the category; null if there are none."""
    completions: int


class BreakdownExample(Documented):
    """A stored group that serves as an example."""

    window: Literal["before", "after"]
    step: int
    group: str


class BreakdownRow(Documented):
    """The contribution of a category to the change of a metric."""

    kind: Literal["category", "others", "not_stored"]
    label: str
    prompt: str
    """First characters of the prompt, if the category is a prompt or a group."""
    marks: list[str]
    """Marks of all completions of the category, if it is defined by flags."""
    before: BreakdownSide
    after: BreakdownSide
    value: float
    """Part of the change that is due to the changed mean of the category."""
    share: float
    """Part of the change that is due to the changed share of the category."""
    total: float
    examples: list[BreakdownExample]


class BreakdownResponse(Documented):
    """The change of a metric between two windows as the sum of the rows."""

    run: str
    metric: str
    by: Literal["prompt", "group", "flag", "length", "term"]
    before: BreakdownWindow
    after: BreakdownWindow
    change: float
    completions: int
    """Number of completions that are attributed to a category."""
    of: int
    """Number of completions sampled in both windows."""
    notes: list[str]
    rows: list[BreakdownRow]
    """The rows with the largest changes, then one for all others and one for completions that are not stored.
    """


class BudgetBin(Documented):
    """Sums over a range of steps, in the order of the budget's parts."""

    first: int
    last: int
    completions: list[float] | None = None
    tokens: list[float] | None = None
    seconds: list[float] | None = None


class SignalBudget(Documented):
    """The parts of what a run sampled, by whether they moved the policy and why not."""

    run: str
    source: Literal["trainer", "rollouts", ""]
    """`trainer` if the trainer logged them for all completions; `rollouts` if they are derived from marks,
    without seconds, because the run did not log them; empty if there is nothing to count.
    """
    parts: list[str]
    steps: int
    """Number of counted steps."""
    totals: dict[Literal["completions", "tokens", "seconds"], list[float]]
    """Totals by unit, in the order of `parts`; unknown units are omitted."""
    bins: list[BudgetBin]


class SignalBudgets(Documented):
    """The signal budgets of several runs."""

    items: list[SignalBudget]
    next: None


class CapItem(Documented):
    """The weights of a step's stored tokens under one cap."""

    cap: float
    limited: float
    """Share of the tokens whose weight was truncated, or set to 0 by a mask."""
    mean: float
    """Mean weight of the tokens."""
    ess: float
    """Effective sample size as a share of the tokens."""
    lost: float
    """Share of the untruncated weight that the cap removes, which biases the correction."""


class Mismatch(Documented):
    """The stored tokens of a step by sampler and trainer, and the effect of each cap on their weights."""

    run: str
    step: int
    kind: Literal["token_tis", "token_mask", "seq_tis", "seq_mask"]
    level: Literal["product", "geo"]
    """How rho of a completion is computed: as the product or the geometric mean of the rho of its tokens."""
    low: float | None
    """Smallest rho that a mask accepts."""
    run_cap: float | None
    """Cap of the run; null if the run uses another correction."""
    tokens: int
    completions: int
    groups: int
    """Number of stored groups that trained."""
    of_groups: int
    """Number of stored groups."""
    caps: list[CapItem]
    sampler: list[float]
    """Log-probabilities of tokens for a scatter plot, a random sample if there are many tokens."""
    trainer: list[float]
    position: list[int]
    age: list[int]
    """Age of the weights that sampled the token, in steps."""
