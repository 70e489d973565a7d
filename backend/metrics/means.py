"""Means of several curves, with a band around them. Pure numpy.

Along steps a mean has a point wherever a curve has one, of the curves that have a finite value there. Along
time and tokens no two runs have the same x: each is read at the points of all others, on the line between its
own neighbouring points. A curve does not count before its first point, behind its last one, and next to a
value that is not finite.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from backend.metrics.series import Curve, Floats, Ints
from backend.metrics.thinning import coarseness, peak_indices

MAX_CELLS = 250_000
"""Curves x points. Up to there a mean has all points of its curves, beyond it those that show their peaks."""

PLACES = 1_024
"""Buckets per second or per token, at the finest."""

PLACES_OF_A_METRIC = 2**20
"""Finest number of buckets for all values of a metric that is the axis."""


@dataclass(frozen=True, slots=True)
class Band:
    """The mean of several curves and how far they spread around it."""

    mean: Curve
    """Mean curve; along time or tokens, it has the steps of the first curve."""
    low: Floats
    """(N,) NaN if there is no spread, e.g. with one curve left."""
    high: Floats
    n: Ints
    """(N,) curves that count at this point."""
    places: Ints
    """(N,) rising with x: what the points are thinned by."""

    def at(self, indices: NDArray[np.bool_] | slice) -> "Band":
        """Return the points at these places."""
        return Band(
            self.mean.at(indices),
            self.low[indices],
            self.high[indices],
            self.n[indices],
            self.places[indices],
        )


@dataclass(frozen=True, slots=True)
class Picture:
    """The window in which a mean is shown, and its number of points."""

    max_points: int = 500
    x_min: float | None = None
    x_max: float | None = None
    places: float = PLACES
    """Buckets per unit of x, at the finest."""


def bucket_density(curves: Sequence[Curve]) -> float:
    """`Picture.places` for an axis whose unit may be of any size."""
    positions = np.concatenate([curve.x for curve in curves])
    span = float(np.ptp(positions)) if len(positions) else 0.0
    return PLACES_OF_A_METRIC / span if span > 0 else PLACES


def average_curves(
    curves: Sequence[Curve], spread: str, t_975: Floats, picture: Picture | None = None
) -> Band:
    """Return the mean over the curves that count at each step (or x), with a band around it.

    spread: `std` mean -+ one sample standard deviation, `stderr` -+ one standard error, `ci95` Student's
    95 % interval, `minmax` smallest and largest curve, "" none. `t_975[d]` is Student's quantile for d
    degrees of freedom (index 0 unused). One curve alone has no spread. A picture changes no value, only how
    many there are of very many.
    """
    if all(np.array_equal(curve.x, curve.steps) for curve in curves):
        steps, x, values = _values_by_step(curves)
        places = steps
    else:
        curves, picture = [_make_rising(curve) for curve in curves], picture or Picture()
        x = _positions(curves, picture, arrays=3 if spread else 1)
        values = np.stack([_interpolate(curve, x) for curve in curves])
        steps = np.interp(x, curves[0].x, curves[0].steps).astype(np.int64)
        places = _buckets(x, picture)
    counting = ~np.isnan(values)
    n = np.count_nonzero(counting, axis=0)
    mean = np.where(n > 0, np.where(counting, values, 0.0).sum(axis=0) / np.maximum(n, 1), np.nan)
    low, high = _band_edges(values, counting, mean, n, spread, t_975)
    return Band(Curve(steps, x, mean), low, high, n, places)


def _values_by_step(curves: Sequence[Curve]) -> tuple[Ints, Floats, Floats]:
    """Return all steps, their x, and the values of each curve, NaN where a curve has none."""
    steps = np.unique(np.concatenate([curve.steps for curve in curves]))
    values = np.full((len(curves), len(steps)), np.nan)
    for row, curve in enumerate(curves):
        finite = np.isfinite(curve.values)
        values[row, np.searchsorted(steps, curve.steps[finite])] = curve.values[finite]
    return steps, steps.astype(float), values


def _make_rising(curve: Curve) -> Curve:
    """Return the curve with strictly increasing x; points with equal x (a step without tokens) move apart."""
    if (np.diff(curve.x) > 0).all():
        return curve
    curve = curve.at(np.argsort(curve.x, kind="stable"))
    is_first = np.diff(curve.x, prepend=-np.inf) > 0
    places = np.arange(len(curve))
    behind = places - np.maximum.accumulate(np.where(is_first, places, 0))
    x = curve.x + behind * np.spacing(np.maximum(np.abs(curve.x), 1.0))
    return replace(curve, x=np.maximum.accumulate(x))


def _positions(curves: Sequence[Curve], picture: Picture, *, arrays: int) -> Floats:
    """Return the x of all points, or of those of each curve that show its peaks and gaps in the picture."""
    low = -np.inf if picture.x_min is None else picture.x_min
    high = np.inf if picture.x_max is None else picture.x_max
    inside = [curve.at((curve.x >= low) & (curve.x <= high)) for curve in curves]
    inside = [curve for curve in inside if len(curve)]
    if not inside:
        return np.empty(0)
    if sum(map(len, inside)) * len(curves) > MAX_CELLS:
        ends = np.array([min(curve.x[0] for curve in inside), max(curve.x[-1] for curve in inside)])
        ends = _buckets(ends, picture)
        shift = coarseness(int(ends[0]), int(ends[1]), picture.max_points, arrays=arrays)
        inside = [curve.at(_telling_indices(curve, shift, picture)) for curve in inside]
    return np.unique(np.concatenate([curve.x for curve in inside]))


def _telling_indices(curve: Curve, shift: int, picture: Picture) -> Ints:
    """Return the indices of a curve's ends, of its peaks, and of points next to non-finite values."""
    edges = np.flatnonzero(np.diff(np.isfinite(curve.values)))
    return np.unique(
        np.concatenate([peak_indices(_buckets(curve.x, picture), shift, curve.values), edges, edges + 1])
    )


def _buckets(x: Floats, picture: Picture) -> Ints:
    """Return bucket numbers, shifted to start at 0, because no bucket may span 0."""
    return np.clip(np.floor(x * picture.places), -(2.0**61), 2.0**61).astype(np.int64) + 2**61


def _interpolate(curve: Curve, x: Floats) -> Floats:
    """Return the curve at each x, on the line between its points; NaN outside, and next to what is not
    finite.
    """
    finite_values = np.where(np.isfinite(curve.values), curve.values, np.nan)
    read: Floats = np.interp(x, curve.x, finite_values, left=np.nan, right=np.nan)
    return read


def _band_edges(
    values: Floats, counting: NDArray[np.bool_], mean: Floats, n: Ints, spread: str, t_975: Floats
) -> tuple[Floats, Floats]:
    if spread == "":
        nothing = np.full_like(mean, np.nan)
        return nothing, nothing
    if spread == "minmax":
        low = np.where(counting, values, np.inf).min(axis=0)
        high = np.where(counting, values, -np.inf).max(axis=0)
        return np.where(n > 1, low, np.nan), np.where(n > 1, high, np.nan)
    away = np.where(counting, values - mean, 0.0)
    std = np.sqrt(np.einsum("ij,ij->j", away, away) / np.maximum(n - 1, 1))
    factor = {
        "std": np.ones(len(mean)),
        "stderr": 1.0 / np.sqrt(np.maximum(n, 1)),
        "ci95": t_975[np.clip(n - 1, 1, len(t_975) - 1)] / np.sqrt(np.maximum(n, 1)),
    }[spread]
    half = np.where(n > 1, std * factor, np.nan)
    return mean - half, mean + half
