"""Conversion of NaN, infinities and -0.0 for SQL, JSON and CSV.

SQLite turns NaN into NULL and -0.0 into 0.0, and JSON cannot represent NaN. A value is therefore stored as
(kind, value), and in JSON and CSV a non-finite value is written as `"NaN"`, `"Infinity"` or `"-Infinity"`.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FINITE, NAN, INFINITY, MINUS_INFINITY, MINUS_ZERO = range(5)

NAME_BY_KIND = ("", "NaN", "Infinity", "-Infinity", "-0.0")
"""Name of each kind, by its number. Finite values other than -0.0 have no name."""

NON_FINITE_NAMES = NAME_BY_KIND[NAN:MINUS_ZERO]

_VALUE_BY_KIND = np.array([0.0, math.nan, math.inf, -math.inf, -0.0])

Spelled = float | str
"""A finite number, or the name of a non-finite number."""


class StoredNumber(NamedTuple):
    """A value as the table `metric` stores it."""

    kind: int
    value: float | None


def to_stored(value: float) -> StoredNumber:
    """Return (0, value) for a finite value, (4, 0.0) for -0.0, and (kind, None) otherwise."""
    kind = number_kind(value)
    return StoredNumber(kind, float(value) if kind == FINITE else 0.0 if kind == MINUS_ZERO else None)


def number_kind(value: float) -> int:
    """Return the kind of a value: 0 finite, 1 NaN, 2 +infinity, 3 -infinity, 4 minus zero."""
    if math.isfinite(value):
        return MINUS_ZERO if value == 0 and math.copysign(1.0, value) < 0 else FINITE
    if math.isnan(value):
        return NAN
    return INFINITY if value > 0 else MINUS_INFINITY


def number_kinds(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the kind of each value, as in `number_kind`."""
    kinds = np.select(
        [np.isnan(values), np.isposinf(values), np.isneginf(values), (values == 0) & np.signbit(values)],
        [NAN, INFINITY, MINUS_INFINITY, MINUS_ZERO],
        FINITE,
    )
    return kinds.astype(np.int64)


def from_stored(kinds: NDArray[np.integer[Any]], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the original values. Entries of `values` whose kind is not 0 are ignored."""
    return np.where(kinds == FINITE, values, _VALUE_BY_KIND[kinds])


def spell(value: float) -> Spelled:
    """Return a finite number unchanged, or the name of a non-finite number."""
    return float(value) if math.isfinite(value) else NAME_BY_KIND[number_kind(value)]


def spell_all(document: Any) -> Any:
    """Return a JSON document with every non-finite number replaced by its name."""
    if isinstance(document, float):
        return spell(document)
    if isinstance(document, dict):
        return {key: spell_all(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [spell_all(value) for value in document]
    return document
