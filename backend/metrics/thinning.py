"""Thinning of curves to the points that a screen can show. Pure numpy, without SQL and HTTP.

A curve is thinned in buckets of steps: each keeps its smallest and its largest value, and the curve its
first and last point, so no spike is lost. The buckets lie on a grid of powers of two that starts at step
0, so the points that a run shows depend on nothing but the run itself and hardly move while it grows.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from backend.metrics.series import Curve, Floats, Ints

AT_ONCE = 2**19
"""Maximum number of points that are thinned in one batch."""

OUTLINE_SHIFT = 5
"""log2 of the steps of an outline's buckets."""


def thin(curve: Curve, max_points: int, *edges: Floats) -> Ints:
    """Indices of at most `max_points` of the finite points that show the same picture.

    Kept are the first and the last point and, of each bucket of steps, the smallest and the largest value of
    the curve and of each array of `edges`.
    """
    return thin_all([curve], max_points, *([edge] for edge in edges))[0]


def thin_all(curves: Sequence[Curve], max_points: int, *edges: Sequence[Floats]) -> list[Ints]:
    """Thin several curves, many short ones at once; `edges` has an array per curve."""
    indices: list[Ints] = []
    for batch in _batches(curves):
        indices += _thin_batch(curves[batch], max_points, *(edge[batch] for edge in edges))
    return indices


def _batches(curves: Sequence[Curve]) -> Iterator[slice]:
    """Yield slices of curves to thin together, limited because their copies take memory."""
    begin, size = 0, 0
    for number, curve in enumerate(curves):
        size += len(curve)
        if size >= AT_ONCE or number == len(curves) - 1:
            yield slice(begin, number + 1)
            begin, size = number + 1, 0


def _thin_batch(curves: Sequence[Curve], max_points: int, *edge_arrays: Sequence[Floats]) -> list[Ints]:
    begins = np.cumsum([0, *map(len, curves)])
    values = np.concatenate([curve.values for curve in curves])
    finite = np.flatnonzero(np.isfinite(values))
    edges = np.searchsorted(finite, begins)
    steps = np.concatenate([curve.steps for curve in curves])[finite]
    buckets = np.arange(len(finite))  # of curves that keep all points
    for curve, first, (begin, end) in zip(curves, begins[:-1], pairwise(edges), strict=True):
        steps_of_curve = steps[begin:end]
        if not _is_short(curve, finite[begin:end] - first, max_points):
            buckets[begin:end] = steps_of_curve >> _curve_coarseness(
                steps_of_curve, max_points, arrays=1 + len(edge_arrays)
            )
    has_any = edges[:-1] < edges[1:]
    firsts, lasts = edges[:-1][has_any], edges[1:][has_any] - 1
    is_first = _differs_from_previous(buckets)
    is_first[firsts] = True
    starts = np.flatnonzero(is_first)
    arrays = [array[finite] for array in (values, *map(np.concatenate, edge_arrays))]
    indices = finite[_sorted_unique(firsts, lasts, *(_extreme_indices(array, starts) for array in arrays))]
    of_each = np.split(indices, np.searchsorted(indices, begins[1:-1]))
    return [places - first for places, first in zip(of_each, begins[:-1], strict=True)]


def _is_short(curve: Curve, finite: Ints, max_points: int) -> bool:
    """Return whether all finite points of a curve are shown: no more than that, and none was left out
    before.
    """
    return len(finite) <= max_points and _raw_points(curve, finite) == len(finite)


def _raw_points(curve: Curve, places: Ints) -> int:
    """Return the number of points that the points at these places represent."""
    return len(places) if curve.weights is None else int(curve.weights[places].sum())


def is_outline_sufficient(curve: Curve, max_points: int) -> bool:
    """Return whether a curve that may be an outline is thinned to what its raw points would be thinned to."""
    finite = np.flatnonzero(np.isfinite(curve.values))
    raw_points = _raw_points(curve, finite)
    if raw_points == len(finite):
        return True
    return raw_points > max_points and _curve_coarseness(curve.steps[finite], max_points) >= OUTLINE_SHIFT


def _curve_coarseness(steps: Ints, max_points: int, *, arrays: int = 1) -> int:
    return coarseness(int(steps[0]), int(steps[-1]), max_points, arrays=arrays)


def coarseness(first: int, last: int, max_points: int, *, arrays: int = 1) -> int:
    """log2 of the width of the buckets in which a curve over these steps is thinned."""
    return _bucket_shift(first, last, max(1, (max_points - 2) // (2 * arrays)))


def peak_indices(steps: Ints, shift: int, *arrays: Floats) -> Ints:
    """Places of the first and last point and, of each bucket and array, of its smallest and largest value.

    Buckets of one width contain those of any smaller one: thinned peaks are the peaks of the thinned.
    """
    starts, ends = _bucket_starts(steps, shift), np.array([0, len(steps) - 1])
    return _sorted_unique(ends, *(_extreme_indices(array, starts) for array in arrays))


def _sorted_unique(*places: Ints) -> Ints:
    """Return the sorted indices without duplicates."""
    indices = np.concatenate(places)
    indices.sort()
    return indices[_differs_from_previous(indices)]


LARGEST_SHIFT = 62
"""Steps have 63 bits and a sign: those below 0 never share a bucket with others."""


def _bucket_shift(first: int, last: int, buckets: int) -> int:
    shift = 0
    while shift < LARGEST_SHIFT and (last >> shift) - (first >> shift) >= buckets:
        shift += 1
    return shift


def _bucket_starts(steps: Ints, shift: int) -> Ints:
    """Return the index of the first step of each bucket; buckets have one width, a power of two, from
    step 0 on.
    """
    first, last = int(steps[0]), int(steps[-1])
    edges = np.arange(first >> shift, (last >> shift) + 1) << shift
    places = np.searchsorted(steps, edges)
    return places[_differs_from_previous(places)]


def _differs_from_previous(ascending: Ints) -> NDArray[np.bool_]:
    """Return whether each number differs from the one before."""
    begins = np.ones(len(ascending), bool)
    np.not_equal(ascending[1:], ascending[:-1], out=begins[1:])
    return begins


def _extreme_indices(values: Floats, starts: Ints) -> Ints:
    """Return the indices of the smallest and the largest value of each bucket; the earliest of equal ones."""
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
            _first_indices(low, np.minimum.reduceat(low, starts), bucket),
            _first_indices(high, np.maximum.reduceat(high, starts), bucket),
        ]
    )


def _first_indices(values: Floats, extremes: Floats, bucket: Ints) -> Ints:
    """Return each bucket's first position with the wanted value; `bucket` holds each position's bucket."""
    places = np.flatnonzero(values == extremes[bucket])
    return places[_differs_from_previous(bucket[places])]


def thin_non_finite(curve: Curve, max_points: int) -> Ints:
    """Indices of at most `max_points` of the values that are not finite: the first, then the last, of all."""
    places = np.flatnonzero(~np.isfinite(curve.values))
    if len(places) <= max_points:
        return places
    steps = curve.steps[places]
    at_most = max(1, max_points - 1)
    indices: Ints = places[_bucket_starts(steps, _bucket_shift(int(steps[0]), int(steps[-1]), at_most))]
    return indices if max_points < 2 or indices[-1] == places[-1] else np.append(indices, places[-1])
