"""Selection of a test's cases for the gate, `make test`."""

from collections.abc import Iterable
from typing import Any

import pytest


def first_in_gate(count: int, cases: Iterable[Any]) -> list[Any]:
    """Return parameters of a test, of which the first `count` run in the gate and the others nightly."""
    values = [case if type(case) is tuple else (case,) for case in cases]  # a NamedTuple is one value
    return [
        pytest.param(*value, marks=() if index < count else pytest.mark.nightly)
        for index, value in enumerate(values)
    ]
