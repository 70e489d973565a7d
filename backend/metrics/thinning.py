"""Thinning of curves to the points that a screen can show. Pure numpy, without SQL and HTTP.

A curve is thinned in buckets of steps: each keeps its smallest and its largest value, and the curve its
first and last point, so no spike is lost. The buckets lie on a grid of powers of two that starts at step
0, so the points that a run shows depend on nothing but the run itself and hardly move while it grows.
"""

import numpy as np
from numpy.typing import NDArray

from backend.metrics.series import Curve, Floats, Ints

OUTLINE_SHIFT = 5
"""log2 of the steps of an outline's buckets."""


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
    places = np.concatenate([ends, *(_extremes(each, starts) for each in arrays)])
    places.sort()
    return places[_begins(places)]


def _shift(first: int, last: int, buckets: int) -> int:
    shift = 0
    while (last >> shift) - (first >> shift) >= buckets:
        shift += 1
    return shift


def _starts(steps: Ints, shift: int) -> Ints:
    """Places of the first step of each bucket: all of one width, a power of two, counted from step 0."""
    first, last = int(steps[0]), int(steps[-1])
    edges = np.arange(first >> shift, (last >> shift) + 1) << shift
    places = np.searchsorted(steps, edges)
    return places[_begins(places)]


def _begins(ascending: Ints) -> NDArray[np.bool_]:
    """Whether each number differs from the one before."""
    begins = np.ones(len(ascending), bool)
    np.not_equal(ascending[1:], ascending[:-1], out=begins[1:])
    return begins


def _extremes(values: Floats, starts: Ints) -> Ints:
    """Places of the smallest and the largest value of each bucket; the earliest of equal ones."""
    is_finite = np.isfinite(values)
    if is_finite.all():
        low = high = values
    else:
        low, high = np.where(is_finite, values, np.inf), np.where(is_finite, values, -np.inf)
    bucket = np.zeros(len(values), np.intp)
    bucket[starts[1:]] = 1
    np.cumsum(bucket, out=bucket)
    return np.concatenate(
        [
            _first(low, np.minimum.reduceat(low, starts), bucket),
            _first(high, np.maximum.reduceat(high, starts), bucket),
        ]
    )


def _first(values: Floats, wanted: Floats, bucket: Ints) -> Ints:
    """Of each bucket the first place with the wanted value; `bucket` is that of each place."""
    places = np.flatnonzero(values == wanted[bucket])
    return places[_begins(bucket[places])]


def thin_non_finite(curve: Curve, max_points: int) -> Ints:
    """Indices of at most `max_points` of the values that are not finite, first of all the first."""
    places = np.flatnonzero(~np.isfinite(curve.values))
    if len(places) <= max_points:
        return places
    steps = curve.steps[places]
    found: Ints = places[_starts(steps, _shift(int(steps[0]), int(steps[-1]), max_points))]
    return found
