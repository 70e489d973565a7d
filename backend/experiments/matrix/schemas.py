"""The ablation matrix as the HTTP interface shows it."""

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
    """A column: a metric, read in one way."""

    key: str
    metric: str
    reading: Literal["final", "best", "equal_tokens", "auc", "steps_to", "tokens_to", "seconds_to"]
    threshold: float | None
    unit: str
    better: Literal["up", "down", ""]
    """Direction of improvement; without one a difference is called higher or lower."""


class MatrixRun(LaunchedRun, Judged):
    """A run of a row."""

    counts: bool
    """false: another run of the row has the same seed and was launched first."""


class Versus(Documented):
    """The difference from the baseline."""

    paired: bool
    n: int
    """Pairs of seeds; without pairs the smaller number of seeds."""
    mean: float
    low: float | None
    """Lower end of the 95 % interval, before the correction over the table."""
    high: float | None
    p: float | None
    """Two-sided, before the correction."""
    p_corrected: float | None
    """p value corrected by Holm's procedure over all differences of the table."""
    effect: float | None
    """Hedges' g_av."""
    variance_ratio: float | None
    """Variance of the paired differences over that of independent seeds; null unpaired."""


class MatrixCell(Documented):
    """A variant in one column."""

    n: int
    """Runs with a finite value; unfinished ones count in the mean, and never in the difference."""
    mean: float | None
    std: float | None
    low: float | None
    """Lower end of Student's 95 % interval of the mean."""
    high: float | None
    values: list[float | str | None]
    """One per run of the row, in the order of `runs`; null if a run has none."""
    reached: int | None
    """Number of counted runs that reached the threshold, including runs that do not record what it took; null
    if none of them records the metric."""
    sparkline: list[float | None]
    """The mean curve of the metric, at most 40 values evenly over the steps."""
    versus: Versus | None
    verdict: Verdict
    reason: str
    """One sentence on a verdict that is not a claim; else empty."""
    more_seeds: int | None
    """Number of further seeds with which the difference would be decided in 80 % of cases if it is as large
    as measured; for `no claim`, the fewest that an interval needs."""


class MatrixRow(Documented):
    """A variant."""

    variant: str
    runs: list[MatrixRun]
    cells: dict[str, MatrixCell]
    """Cells by the columns' keys."""


class Matrix(Documented):
    """Variants x metrics."""

    baseline: int
    """Index of the baseline's row."""
    columns: list[MatrixColumn]
    """Metrics for which any run has a value."""
    rows: list[MatrixRow]
    looks: Literal["planned", "any time"]
    """planned: one test after all planned seeds have finished, with Student's t; any time: always valid."""
    planned: int | None
    """Seeds per variant under a plan."""
    tests: int
    """Differences in the table, over which p-values are corrected."""
    tokens: float | None
    """Tokens of the readings at equal tokens."""
    missing: list[str]
    """Ids of runs that were requested and do not exist."""
    notes: list[str]
    """Sentences on what a reader should know of the runs."""
