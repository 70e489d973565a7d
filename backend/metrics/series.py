"""Curves for a screen, from raw points; means of several are in `means`. Pure numpy, without SQL and HTTP.

A curve is thinned in buckets of steps: each keeps its smallest and its largest value, and the curve its
first and last point, so no spike is lost. The buckets lie on a grid of powers of two that starts at step
0, so the points that a run shows depend on nothing but the run itself and hardly move while it grows.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BLOCK = 128

OUTLINE_SHIFT = 5
"""log2 of the steps of an outline's buckets."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Points of one metric in order of their steps."""

    steps: Ints
    """(N,) increasing."""
    x: Floats
    """(N,) position: step, seconds or tokens."""
    values: Floats
    """(N,) may hold NaN and infinities."""
    weights: Ints | None = None
    """(N,) for how many points each stands, in an outline; None where these are all points."""

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def raw_points(self) -> int:
        """The number of points, shown or not."""
        return len(self) if self.weights is None else int(self.weights.sum())

    def at(self, index: NDArray[np.bool_] | Ints | slice) -> "Curve":
        """Only those points."""
        weights = None if self.weights is None else self.weights[index]
        return Curve(self.steps[index], self.x[index], self.values[index], weights)


def ema(values: Floats, smoothing: float) -> Floats:
    """Exponential moving average, debiased: the k-th finite value counts with weight (1-s) s^(n-k) / (1-s^n).

    NaN and infinities stay where they are and do not enter; a constant curve and smoothing 0 change nothing.
    Source: TensorBoard, line_chart_v2/data_transformer.ts.
    """
    if smoothing <= 0:
        return values
    finite = np.isfinite(values)
    known = values[finite]
    if len(known) < 2 or np.all(known == known[0]):
        return values
    smooth = values.copy()
    weight = 1.0 - smoothing ** np.arange(1, len(known) + 1)
    smooth[finite] = _recursive_mean(known, smoothing) / weight
    return smooth


def _recursive_mean(values: Floats, s: float) -> Floats:
    """y[k] = s y[k-1] + (1-s) values[k], y[-1] = 0; block by block, as one matrix product each."""
    n = len(values)
    padded = np.zeros(-(-n // BLOCK) * BLOCK)
    padded[:n] = values
    blocks = padded.reshape(-1, BLOCK)
    lag = np.arange(BLOCK)[:, None] - np.arange(BLOCK)[None, :]
    kernel = np.where(lag >= 0, (1.0 - s) * s ** np.maximum(lag, 0), 0.0)
    within = blocks @ kernel.T
    decay = s ** np.arange(1, BLOCK + 1)
    carried = np.zeros(len(blocks))
    for block in range(1, len(blocks)):
        carried[block] = within[block - 1, -1] + decay[-1] * carried[block - 1]
    return (within + carried[:, None] * decay).reshape(-1)[:n]


def window(curve: Curve, x_min: float | None, x_max: float | None) -> NDArray[np.bool_]:
    """A mask of the points with x_min <= x <= x_max."""
    low = -np.inf if x_min is None else x_min
    high = np.inf if x_max is None else x_max
    return (curve.x >= low) & (curve.x <= high)


def thin(curve: Curve, max_points: int, *others: Floats) -> Ints:
    """Indices of at most `max_points` of the finite points that show the same picture.

    Kept are the first and the last point and, of each bucket of steps, the smallest and the largest value of
    the curve and of each array of `others`.
    """
    finite = np.flatnonzero(np.isfinite(curve.values))
    if len(finite) <= max_points and (curve.weights is None or curve.at(finite).raw_points == len(finite)):
        return finite
    if len(finite) < len(curve):
        kept = thin(curve.at(finite), max_points, *(values[finite] for values in others))
        return finite[kept]
    shift = _coarseness_of(curve.steps, max_points, arrays=1 + len(others))
    return peaks(curve.steps, shift, curve.values, *others)


def is_fine(curve: Curve, max_points: int) -> bool:
    """Whether a curve that may be an outline is thinned to what its raw points would be thinned to."""
    finite = curve.at(np.isfinite(curve.values))
    if finite.raw_points == len(finite):
        return True
    return finite.raw_points > max_points and _coarseness_of(finite.steps, max_points) >= OUTLINE_SHIFT


def _coarseness_of(steps: Ints, max_points: int, *, arrays: int = 1) -> int:
    return coarseness(int(steps[0]), int(steps[-1]), max_points, arrays=arrays)


def coarseness(first: int, last: int, max_points: int, *, arrays: int = 1) -> int:
    """log2 of the width of the buckets in which a curve over these steps is thinned."""
    return _shift(first, last, max(1, (max_points - 2) // (2 * arrays)))


def peaks(steps: Ints, shift: int, *arrays: Floats) -> Ints:
    """Places of the first and last point and, of each bucket and array, of its smallest and largest value.

    Buckets of one width contain those of any smaller one: thinned peaks are the peaks of the thinned.
    """
    starts, ends = _starts(steps, shift), np.array([0, len(steps) - 1])
    return np.unique(np.concatenate([ends, *(_extremes(each, starts) for each in arrays)]))


def _shift(first: int, last: int, buckets: int) -> int:
    shift = 0
    while (last >> shift) - (first >> shift) >= buckets:
        shift += 1
    return shift


def _starts(steps: Ints, shift: int) -> Ints:
    """Places of the first step of each bucket: all of one width, a power of two, counted from step 0."""
    first, last = int(steps[0]), int(steps[-1])
    edges = np.arange(first >> shift, (last >> shift) + 1) << shift
    return np.unique(np.searchsorted(steps, edges))


def _extremes(values: Floats, starts: Ints) -> Ints:
    """Places of the smallest and the largest value of each bucket; the earliest of equal ones."""
    is_finite = np.isfinite(values)
    if is_finite.all():
        low = high = values
    else:
        low, high = np.where(is_finite, values, np.inf), np.where(is_finite, values, -np.inf)
    return np.concatenate(
        [
            _first(low, np.minimum.reduceat(low, starts), starts),
            _first(high, np.maximum.reduceat(high, starts), starts),
        ]
    )


def _first(values: Floats, wanted: Floats, starts: Ints) -> Ints:
    """Of each bucket the first place with the wanted value."""
    places = np.flatnonzero(values == np.repeat(wanted, np.diff(starts, append=len(values))))
    bucket = np.searchsorted(starts, places, side="right")
    found: Ints = places[np.diff(bucket, prepend=0) != 0]
    return found


def thin_non_finite(curve: Curve, max_points: int) -> Ints:
    """Indices of at most `max_points` of the values that are not finite, first of all the first."""
    places = np.flatnonzero(~np.isfinite(curve.values))
    if len(places) <= max_points:
        return places
    steps = curve.steps[places]
    found: Ints = places[_starts(steps, _shift(int(steps[0]), int(steps[-1]), max_points))]
    return found
