"""Thin curves to the points that a screen can show, in pure numpy without SQL and HTTP.

A curve is divided into buckets of steps. The smallest and largest value of each bucket, and the first and
last point of the curve, are kept, so that no spike is lost. Buckets are aligned to a grid of powers of two
that starts at step 0, so that the points of a run do not depend on other runs and hardly change while it
grows.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from backend.metrics.series import Curve, Floats, Ints

MAX_BATCH_POINTS = 2**19
"""Maximum number of points that are thinned in one batch."""

OUTLINE_SHIFT = 5
"""Base-2 logarithm of the bucket size of outlines, in steps."""


def thin(curve: Curve, max_points: int, *edges: Floats) -> Ints:
    """Return the indices of at most `max_points` finite points that look like the whole curve.

    They are the first and last point, and the smallest and largest value of the curve and of each array of
    `edges` in each bucket of steps.
    """
    return thin_all([curve], max_points, *([edge] for edge in edges))[0]


def thin_all(curves: Sequence[Curve], max_points: int, *edges: Sequence[Floats]) -> list[Ints]:
    """Thin several curves in batches. Each element of `edges` has an array per curve."""
    indices: list[Ints] = []
    for batch in _batches(curves):
        indices += _thin_batch(curves[batch], max_points, *(edge[batch] for edge in edges))
    return indices


def _batches(curves: Sequence[Curve]) -> Iterator[slice]:
    """Yield slices of curves that are thinned together, with a limited
    size because their copies take memory.
    """
    start, size = 0, 0
    for number, curve in enumerate(curves):
        size += len(curve)
        if size >= MAX_BATCH_POINTS or number == len(curves) - 1:
            yield slice(start, number + 1)
            start, size = number + 1, 0


def _thin_batch(curves: Sequence[Curve], max_points: int, *edge_arrays: Sequence[Floats]) -> list[Ints]:
    curve_starts = np.cumsum([0, *map(len, curves)])
    values = np.concatenate([curve.values for curve in curves])
    finite = np.flatnonzero(np.isfinite(values))
    edges = np.searchsorted(finite, curve_starts)
    steps = np.concatenate([curve.steps for curve in curves])[finite]
    buckets = np.arange(len(finite))  # one bucket per point, for curves that keep all points
    for curve, first, (start, end) in zip(curves, curve_starts[:-1], pairwise(edges), strict=True):
        curve_steps = steps[start:end]
        if not _is_short(curve, finite[start:end] - first, max_points):
            buckets[start:end] = curve_steps >> _curve_coarseness(
                curve_steps, max_points, arrays=1 + len(edge_arrays)
            )
    has_any = edges[:-1] < edges[1:]
    firsts, lasts = edges[:-1][has_any], edges[1:][has_any] - 1
    is_first = _differs_from_previous(buckets)
    is_first[firsts] = True
    starts = np.flatnonzero(is_first)
    arrays = [array[finite] for array in (values, *map(np.concatenate, edge_arrays))]
    indices = finite[_sorted_unique(firsts, lasts, *(_extreme_indices(array, starts) for array in arrays))]
    indices_by_curve = np.split(indices, np.searchsorted(indices, curve_starts[1:-1]))
    return [
        curve_indices - first
        for curve_indices, first in zip(indices_by_curve, curve_starts[:-1], strict=True)
    ]


def _is_short(curve: Curve, finite: Ints, max_points: int) -> bool:
    """Return whether all finite points of a curve are kept: there are few, and it is not an outline."""
    return len(finite) <= max_points and _raw_points(curve, finite) == len(finite)


def _raw_points(curve: Curve, indices: Ints) -> int:
    """Return the number of original points that the points at these indices represent."""
    return len(indices) if curve.weights is None else int(curve.weights[indices].sum())


def is_outline_sufficient(curve: Curve, max_points: int) -> bool:
    """Return whether thinning a curve that may be an outline gives the
    same result as for its original points.
    """
    finite = np.flatnonzero(np.isfinite(curve.values))
    raw_points = _raw_points(curve, finite)
    if raw_points == len(finite):
        return True
    return raw_points > max_points and _curve_coarseness(curve.steps[finite], max_points) >= OUTLINE_SHIFT


def _curve_coarseness(steps: Ints, max_points: int, *, arrays: int = 1) -> int:
    return coarseness(int(steps[0]), int(steps[-1]), max_points, arrays=arrays)


def coarseness(first: int, last: int, max_points: int, *, arrays: int = 1) -> int:
    """Return the base-2 logarithm of the bucket size, in steps, for thinning a curve over these steps."""
    return _bucket_shift(first, last, max(1, (max_points - 2) // (2 * arrays)))


def peak_indices(steps: Ints, shift: int, *arrays: Floats) -> Ints:
    """Return the indices of the first and last point, and of each array's extremes in each bucket.

    Larger buckets consist of whole smaller buckets, so the peaks of peaks are the peaks of the original
    points.
    """
    starts, end_indices = _bucket_starts(steps, shift), np.array([0, len(steps) - 1])
    return _sorted_unique(end_indices, *(_extreme_indices(array, starts) for array in arrays))


def _sorted_unique(*places: Ints) -> Ints:
    """Return the sorted indices without duplicates."""
    indices = np.concatenate(places)
    indices.sort()
    return indices[_differs_from_previous(indices)]


MAX_SHIFT = 62
"""Maximum shift of steps, which have 63 bits and a sign. Negative steps never share a bucket with others."""


def _bucket_shift(first: int, last: int, buckets: int) -> int:
    shift = 0
    while shift < MAX_SHIFT and (last >> shift) - (first >> shift) >= buckets:
        shift += 1
    return shift


def _bucket_starts(steps: Ints, shift: int) -> Ints:
    """Return the index of the first point in each nonempty bucket. Buckets have 2**shift steps."""
    first, last = int(steps[0]), int(steps[-1])
    edges = np.arange(first >> shift, (last >> shift) + 1) << shift
    starts = np.searchsorted(steps, edges)
    return starts[_differs_from_previous(starts)]


def _differs_from_previous(ascending: Ints) -> NDArray[np.bool_]:
    """Return a mask of the numbers that differ from the one before."""
    is_different = np.ones(len(ascending), bool)
    np.not_equal(ascending[1:], ascending[:-1], out=is_different[1:])
    return is_different


def _extreme_indices(values: Floats, starts: Ints) -> Ints:
    """Return the indices of the smallest and largest value of each
    bucket. Of equal values, the first is used.
    """
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
    """Return the first index of each bucket's extreme value. `bucket` has the bucket of each index."""
    matches = np.flatnonzero(values == extremes[bucket])
    return matches[_differs_from_previous(bucket[matches])]


def thin_non_finite(curve: Curve, max_points: int) -> Ints:
    """Return the indices of at most `max_points` non-finite values, including the first and the last."""
    indices_of_all = np.flatnonzero(~np.isfinite(curve.values))
    if len(indices_of_all) <= max_points:
        return indices_of_all
    steps = curve.steps[indices_of_all]
    max_buckets = max(1, max_points - 1)
    indices: Ints = indices_of_all[
        _bucket_starts(steps, _bucket_shift(int(steps[0]), int(steps[-1]), max_buckets))
    ]
    return (
        indices
        if max_points < 2 or indices[-1] == indices_of_all[-1]
        else np.append(indices, indices_of_all[-1])
    )
