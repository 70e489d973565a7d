"""Compute means of several curves with a band around them, in pure numpy.

Over steps, a mean has a point at every step of any curve and averages the curves with a finite value there.
Over time and tokens, runs have different x positions, so each curve is interpolated linearly at the points of
all others. A curve does not count before its first point, after its last point, or next to a non-finite
value.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from backend.metrics.series import Curve, Floats, Ints
from backend.metrics.thinning import coarseness, peak_indices

MAX_CELLS = 250_000
"""Maximum number of curves x points up to which a mean has all points of
its curves. Above it, only peaks are kept.
"""

MAX_BUCKETS_PER_UNIT = 1_024
"""Maximum number of buckets per second or per token."""

MAX_METRIC_BUCKETS = 2**20
"""Maximum number of buckets over the range of an axis that is a metric."""


@dataclass(frozen=True, slots=True)
class Band:
    """The mean of several curves and the spread around it."""

    mean: Curve
    """Mean curve. Over time or tokens, it has the steps of the first curve."""
    low: Floats
    """Lower edge of the band, of shape (N,), or NaN if there is no spread, e.g. with a single curve."""
    high: Floats
    n: Ints
    """Number of curves that count at each point, of shape (N,)."""
    buckets: Ints
    """Bucket number of each point for thinning, of shape (N,), increasing with x."""

    def select(self, indices: NDArray[np.bool_] | slice) -> "Band":
        """Return the points at these indices."""
        return Band(
            self.mean.select(indices),
            self.low[indices],
            self.high[indices],
            self.n[indices],
            self.buckets[indices],
        )


@dataclass(frozen=True, slots=True)
class Picture:
    """The window in which a mean is displayed, and the number of points."""

    max_points: int = 500
    x_min: float | None = None
    x_max: float | None = None
    buckets_per_unit: float = MAX_BUCKETS_PER_UNIT
    """Maximum number of buckets per unit of x."""


def bucket_density(curves: Sequence[Curve]) -> float:
    """Return `Picture.buckets_per_unit` for an axis with any unit."""
    positions = np.concatenate([curve.x for curve in curves])
    span = float(np.ptp(positions)) if len(positions) else 0.0
    return MAX_METRIC_BUCKETS / span if span > 0 else MAX_BUCKETS_PER_UNIT


def average_curves(
    curves: Sequence[Curve], spread: str, t_975: Floats, picture: Picture | None = None
) -> Band:
    """Return the mean of the curves at each step or x, with a band around it.

    `spread` is `std` for mean -+ one sample standard deviation, `stderr` for -+ one standard error, `ci95`
    for Student's 95 % interval, `minmax` for the smallest and largest curve, or "" for none. `t_975[d]` is
    Student's quantile for d degrees of freedom (index 0 is unused). A single curve has no spread. A picture
    limits the number of points of long curves without changing their values.
    """
    if all(np.array_equal(curve.x, curve.steps) for curve in curves):
        steps, x, values = _values_by_step(curves)
        buckets = steps
    else:
        curves, picture = [_make_rising(curve) for curve in curves], picture or Picture()
        x = _positions(curves, picture, arrays=3 if spread else 1)
        values = np.stack([_interpolate(curve, x) for curve in curves])
        steps = np.interp(x, curves[0].x, curves[0].steps).astype(np.int64)
        buckets = _buckets(x, picture)
    is_counted = ~np.isnan(values)
    n = np.count_nonzero(is_counted, axis=0)
    mean = np.where(n > 0, np.where(is_counted, values, 0.0).sum(axis=0) / np.maximum(n, 1), np.nan)
    low, high = _band_edges(values, is_counted, mean, n, spread, t_975)
    return Band(Curve(steps, x, mean), low, high, n, buckets)


def _values_by_step(curves: Sequence[Curve]) -> tuple[Ints, Floats, Floats]:
    """Return all steps, their x, and the values of each curve, with NaN for missing values."""
    steps = np.unique(np.concatenate([curve.steps for curve in curves]))
    values = np.full((len(curves), len(steps)), np.nan)
    for row, curve in enumerate(curves):
        finite = np.isfinite(curve.values)
        values[row, np.searchsorted(steps, curve.steps[finite])] = curve.values[finite]
    return steps, steps.astype(float), values


def _make_rising(curve: Curve) -> Curve:
    """Return the curve sorted by x. Points with equal x (steps without tokens) are moved apart slightly."""
    if (np.diff(curve.x) > 0).all():
        return curve
    curve = curve.select(np.argsort(curve.x, kind="stable"))
    is_first = np.diff(curve.x, prepend=-np.inf) > 0
    indices = np.arange(len(curve))
    offset = indices - np.maximum.accumulate(np.where(is_first, indices, 0))
    x = curve.x + offset * np.spacing(np.maximum(np.abs(curve.x), 1.0))
    return replace(curve, x=np.maximum.accumulate(x))


def _positions(curves: Sequence[Curve], picture: Picture, *, arrays: int) -> Floats:
    """Return the x of all points in the window, or of the peaks and gaps if there are too many points."""
    low = -np.inf if picture.x_min is None else picture.x_min
    high = np.inf if picture.x_max is None else picture.x_max
    inside = [curve.select((curve.x >= low) & (curve.x <= high)) for curve in curves]
    inside = [curve for curve in inside if len(curve)]
    if not inside:
        return np.empty(0)
    if sum(map(len, inside)) * len(curves) > MAX_CELLS:
        end_buckets = np.array([min(curve.x[0] for curve in inside), max(curve.x[-1] for curve in inside)])
        end_buckets = _buckets(end_buckets, picture)
        shift = coarseness(int(end_buckets[0]), int(end_buckets[1]), picture.max_points, arrays=arrays)
        inside = [curve.select(_telling_indices(curve, shift, picture)) for curve in inside]
    return np.unique(np.concatenate([curve.x for curve in inside]))


def _telling_indices(curve: Curve, shift: int, picture: Picture) -> Ints:
    """Return the indices of a curve's ends and peaks, and of points next to non-finite values."""
    edges = np.flatnonzero(np.diff(np.isfinite(curve.values)))
    return np.unique(
        np.concatenate([peak_indices(_buckets(curve.x, picture), shift, curve.values), edges, edges + 1])
    )


def _buckets(x: Floats, picture: Picture) -> Ints:
    """Return bucket numbers, shifted to be positive, because no bucket may span 0."""
    return np.clip(np.floor(x * picture.buckets_per_unit), -(2.0**61), 2.0**61).astype(np.int64) + 2**61


def _interpolate(curve: Curve, x: Floats) -> Floats:
    """Interpolate a curve linearly at each x, with NaN outside of it and next to non-finite values."""
    finite_values = np.where(np.isfinite(curve.values), curve.values, np.nan)
    interpolated_values: Floats = np.interp(x, curve.x, finite_values, left=np.nan, right=np.nan)
    return interpolated_values


def _band_edges(
    values: Floats, is_counted: NDArray[np.bool_], mean: Floats, n: Ints, spread: str, t_975: Floats
) -> tuple[Floats, Floats]:
    if spread == "":
        no_edges = np.full_like(mean, np.nan)
        return no_edges, no_edges
    if spread == "minmax":
        low = np.where(is_counted, values, np.inf).min(axis=0)
        high = np.where(is_counted, values, -np.inf).max(axis=0)
        return np.where(n > 1, low, np.nan), np.where(n > 1, high, np.nan)
    deviations = np.where(is_counted, values - mean, 0.0)
    std = np.sqrt(np.einsum("ij,ij->j", deviations, deviations) / np.maximum(n - 1, 1))
    factor = {
        "std": np.ones(len(mean)),
        "stderr": 1.0 / np.sqrt(np.maximum(n, 1)),
        "ci95": t_975[np.clip(n - 1, 1, len(t_975) - 1)] / np.sqrt(np.maximum(n, 1)),
    }[spread]
    half_width = np.where(n > 1, std * factor, np.nan)
    return mean - half_width, mean + half_width
