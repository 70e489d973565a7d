"""NaN and the infinities as values: in SQL, in JSON, in CSV.

SQLite turns NaN into NULL and JSON has no word for it, so a value is stored as (kind, value) and spelled
`"NaN"`, `"Infinity"`, `"-Infinity"` wherever numbers are written as text.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FINITE, NAN, INFINITY, MINUS_INFINITY = range(4)

SPELLINGS = ("", "NaN", "Infinity", "-Infinity")
"""Name of each kind; a finite value is spelled by its digits."""

_BY_KIND = np.array([0.0, math.nan, math.inf, -math.inf])

Spelled = float | str
"""A finite number, or the name of one that is not."""


class Stored(NamedTuple):
    """A value as the table `metric` holds it."""

    kind: int
    value: float | None


def to_stored(value: float) -> Stored:
    """(0, value) for a finite value, else (its kind, None)."""
    if math.isfinite(value):
        return Stored(FINITE, float(value))
    return Stored(kind_of(value), None)


def kind_of(value: float) -> int:
    """0 finite, 1 NaN, 2 +infinity, 3 -infinity."""
    if math.isfinite(value):
        return FINITE
    if math.isnan(value):
        return NAN
    return INFINITY if value > 0 else MINUS_INFINITY


def from_stored(kinds: NDArray[np.integer[Any]], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values themselves; `values` may hold anything where the kind is not 0."""
    return np.where(kinds == FINITE, values, _BY_KIND[kinds])


def spell(value: float) -> Spelled:
    """A finite number as it is, any other by its name."""
    return float(value) if math.isfinite(value) else SPELLINGS[kind_of(value)]


def spell_all(document: Any) -> Any:
    """A JSON document with every number that is not finite replaced by its name."""
    if isinstance(document, float):
        return spell(document)
    if isinstance(document, dict):
        return {key: spell_all(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [spell_all(value) for value in document]
    return document
