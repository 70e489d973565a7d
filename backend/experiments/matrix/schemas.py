"""Schemas of the ablation matrix for the HTTP API."""

from typing import Literal

from backend.base.documented import Documented
from backend.experiments.schemas import LaunchedRun
from backend.runs.schemas import Judged

Verdict = Literal[
    "baseline",
    "better",
    "worse",
    "higher",
    "lower",
    "more seeds",
    "no difference shown",
    "no claim",
    "not comparable",
]


class MatrixColumn(Documented):
    """A column of the matrix: a metric and a reading of it."""

    key: str
    metric: str
    reading: Literal["final", "best", "equal_tokens", "auc", "steps_to", "tokens_to", "seconds_to"]
    threshold: float | None
    unit: str
    better: Literal["up", "down", ""]
    """Direction of improvement; without one, a difference is called higher or lower."""


class MatrixRun(LaunchedRun, Judged):
    """A run of a row."""

    counts: bool
    """Whether the run is used; false if an earlier run of the row has the same seed."""


class Versus(Documented):
    """The difference of a cell from the baseline."""

    paired: bool
    n: int
    """Number of pairs of seeds; without pairs, the smaller number of seeds."""
    mean: float
    low: float | None
    """Lower end of the 95 % interval, before the correction over the table."""
    high: float | None
    p: float | None
    """Two-sided p-value before the correction."""
    p_corrected: float | None
    """p-value corrected by Holm's procedure over all differences of the table."""
    effect: float | None
    """Effect size: Hedges' g_av."""
    variance_ratio: float | None
    """Variance of the paired differences relative to independent seeds; null if unpaired."""


class MatrixCell(Documented):
    """The values of a variant in one column."""

    n: int
    """Number of runs with a finite value; unfinished runs count in the mean, but never in the difference."""
    mean: float | None
    std: float | None
    low: float | None
    """Lower end of Student's 95 % interval of the mean."""
    high: float | None
    values: list[float | str | None]
    """One value per run of the row, in the order of `runs`; null for a run without a value."""
    reached: int | None
    """Number of counted runs that reached the threshold, including those that do not record the tokens or
    seconds; null if none of them records the metric.
    """
    sparkline: list[float | None]
    """The mean curve of the metric as at most 40 values, evenly spaced over the steps."""
    versus: Versus | None
    verdict: Verdict
    reason: str
    """A sentence that explains a verdict without a claim; otherwise empty."""
    more_seeds: int | None
    """Number of additional seeds with which the difference would be decided in 80 % of cases, if it is as
    large as measured; for `no claim`, the minimum that an interval needs.
    """


class MatrixRow(Documented):
    """The runs and cells of a variant."""

    variant: str
    runs: list[MatrixRun]
    cells: dict[str, MatrixCell]
    """Cells by the keys of the columns."""


class Matrix(Documented):
    """Variants by metrics."""

    baseline: int
    """Index of the baseline's row."""
    columns: list[MatrixColumn]
    """Metrics for which any run has a value."""
    rows: list[MatrixRow]
    looks: Literal["planned", "any time"]
    """`planned`: one test with Student's t after all planned seeds have finished; `any time`: always valid.
    """
    planned: int | None
    """Planned number of seeds per variant; null without a plan."""
    tests: int
    """Number of differences in the table, over which p-values are corrected."""
    tokens: float | None
    """Number of tokens for the readings at equal tokens."""
    missing: list[str]
    """Ids of requested runs that do not exist."""
    notes: list[str]
    """Sentences that readers should know about the runs."""
