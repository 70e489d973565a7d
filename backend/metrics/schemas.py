"""Schemas of curves in the API."""

from typing import Literal

from backend.base.documented import Documented

SpreadKind = Literal["", "std", "stderr", "ci95", "minmax"]


class NonFinite(Documented):
    """A non-finite value, which is displayed as a marker at the edge of a chart."""

    step: int
    x: float
    value: str


class Origin(Documented):
    """The run from which a curve was forked."""

    run: str
    """Id of the parent. Points up to `step` belong to it or its ancestors."""
    step: int


class End(Documented):
    """The end of a curve, which is the mean of the last 10 steps or the
    last evaluation, averaged over a group.
    """

    n: int
    """Number of runs with a finite end."""
    mean: float | None = None
    low: float | None = None
    """Lower end of the 95 % interval of the mean, or null with fewer than two runs."""
    high: float | None = None


class SeriesItem(Documented):
    """The curve of a run, or the mean curve of a group of runs."""

    run: str | None = None
    group: str | None = None
    runs: list[str] | None = None
    """Ids of the runs of a group."""
    name: str
    metric: str
    x: list[float] | None = None
    """Positions on the axis. Omitted with `compact` if the axis is the step."""
    steps: list[int]
    """Steps of the points. For a group over time or tokens, they are the steps of its first run."""
    values: list[float]
    """Values of the points, which are all finite."""
    non_finite: list[NonFinite]
    raw_points: int
    """Number of points in the window before thinning."""
    n: list[int] | None = None
    """Number of runs in the mean at each point. It is lower than that of
    `runs` if runs have ended or lack a value.
    """
    gaps: list[NonFinite] | None = None
    """Points at which no run of the group has a finite value. `non_finite` has those of single runs."""
    origin: Origin | None = None
    """Origin of a fork. Omitted for other runs."""
    low: list[float | None] | None = None
    high: list[float | None] | None = None
    end: End | None = None
    """End of the curve. Only included with `ends`."""


class Missing(Documented):
    """A requested curve that does not exist."""

    run: str
    metric: str
    reason: str


class SeriesResponse(Documented):
    """The requested curves."""

    series: list[SeriesItem]
    missing: list[Missing]
    cursor: str | None
    """Value of the parameter `after` with which the next request returns only new points."""
