"""Curves as the HTTP interface gives them."""

from typing import Literal

from backend.base.documented import Documented

SpreadKind = Literal["", "std", "stderr", "ci95", "minmax"]


class NonFinite(Documented):
    """A value that is not a finite number, for a marker at the panel's edge."""

    step: int
    x: float
    value: str


class Origin(Documented):
    """The run that a fork's curve comes from."""

    run: str
    """The run that it left; points up to `step` are those of that run, and of the ones before it."""
    step: int


class End(Documented):
    """The end of a curve: the mean of the last 10 steps, or the last evaluation; its mean over a group."""

    n: int
    """Number of runs with a finite end."""
    mean: float | None = None
    low: float | None = None
    """Lower end of the 95 % interval of the mean; null with fewer than two runs."""
    high: float | None = None


class SeriesItem(Documented):
    """One curve: of a run, or the mean of a group of runs."""

    run: str | None = None
    group: str | None = None
    runs: list[str] | None = None
    """The runs of a group."""
    name: str
    metric: str
    x: list[float] | None = None
    """Positions on the axis; None with `compact` if the axis is the step."""
    steps: list[int]
    """Steps of the points; for a group along time or tokens, those that the group's first run had reached."""
    values: list[float]
    """Finite values only."""
    non_finite: list[NonFinite]
    raw_points: int
    """Number of points in the window before thinning."""
    n: list[int] | None = None
    """Number of a group's runs that count at each point; fewer than `runs` if some ended or have no value."""
    gaps: list[NonFinite] | None = None
    """Places where none of a group's runs has a finite value. `non_finite` lists those of single runs."""
    origin: Origin | None = None
    """Origin of a fork; null for any other run."""
    low: list[float | None] | None = None
    high: list[float | None] | None = None
    end: End | None = None
    """Only with `ends`."""


class Missing(Documented):
    """A curve that was requested and does not exist."""

    run: str
    metric: str
    reason: str


class SeriesAnswer(Documented):
    """Curves, ready to be drawn."""

    series: list[SeriesItem]
    missing: list[Missing]
    cursor: str | None
    """Give it as `after` to get what has been added since."""
