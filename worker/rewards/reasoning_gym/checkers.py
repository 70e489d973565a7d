"""Replacement checkers for reasoning_gym tasks whose checkers can be attacked by an answer.

Nine of the library's checkers pass answers to `eval` (literals) or to sympy's `parse_expr` (expressions),
which evaluates them too, so a completion could run code and change later grades. Two more evaluate the
expected answer, and two give full marks to answers that are not numbers. puzzle24 and countdown do so too if
an answer uses other numbers than the given ones. All other scores, including partial credit, are those of the
library.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from json import dumps
from types import MappingProxyType
from typing import Any

import numpy as np
import sympy

from worker.rewards.reasoning_gym.expressions import Vocabulary, factorial, power, read_expression
from worker.rewards.reasoning_gym.literals import read_literal

Entry = Mapping[str, Any]
Checker = Callable[[Any, str, Entry], float]
"""Function that scores an answer to an entry of a dataset."""

_NUMBER = re.compile(r"[\w.]*\d[\w.]*")
_COMMENTED = re.compile(r"#[^\n]*\d")

_ARITHMETIC = {
    "Abs": sympy.Abs,
    "Rational": sympy.Rational,
    "abs": sympy.Abs,
    "ceiling": sympy.ceiling,
    "factorial": factorial,
    "floor": sympy.floor,
    "ln": sympy.log,
    "log": sympy.log,
    "pow": power,
    "sqrt": sympy.sqrt,
}
_ANALYSIS = (
    *("exp", "sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan", "acot", "asec", "acsc"),
    *("sinh", "cosh", "tanh", "coth", "asinh", "acosh", "atanh", "cbrt", "erf", "erfi"),
)
NUMBERS = Vocabulary(_ARITHMETIC, {}, has_variables=False)
POLYNOMIALS = Vocabulary(_ARITHMETIC, {}, has_variables=True)
INTEGRALS = Vocabulary(
    {**_ARITHMETIC, **{name: getattr(sympy, name) for name in _ANALYSIS}, "Integral": sympy.Integral},
    {"pi": sympy.pi, "E": sympy.E},
    has_variables=True,
)


def string_insertion(_dataset: Any, answer: str, entry: Entry) -> float:
    """Return 1 for the string and 0.1 for a list of its letters."""
    return _score_text(answer, [entry["answer"]], 0.1, "".join)


def spiral_matrix(_dataset: Any, answer: str, entry: Entry) -> float:
    """Return 1 for the numbers separated by spaces and 0.1 for a list of them."""
    return _score_text(answer.strip(), [entry["answer"].strip()], 0.1, lambda row: " ".join(map(str, row)))


def binary_matrix(_dataset: Any, answer: str, entry: Entry) -> float:
    """Return 1 for the rows and 0.1 for a list of lists."""
    return _score_text(
        answer, [entry["answer"]], 0.1, lambda rows: "\n".join(" ".join(map(str, row)) for row in rows)
    )


def n_queens(_dataset: Any, answer: str, entry: Entry) -> float:
    """Return 1 for any board that solves the puzzle and 0.5 for a list of lists."""
    boards = entry["metadata"]["valid_answers"]
    return _score_text(answer, boards, 0.5, lambda rows: "\n".join(" ".join(row) for row in rows))


def _score_text(
    answer: str, right_texts: Sequence[str], literal_score: float, write: Callable[[Any], str]
) -> float:
    """Return 1 for a right text, and `literal_score` for a literal that `write` turns into one."""
    if answer in right_texts:
        return 1.0
    try:
        return literal_score if write(read_literal(answer)) in right_texts else 0.0
    except (ValueError, TypeError):
        return 0.0


def puzzle24(_dataset: Any, answer: str, entry: Entry) -> float:
    """Return 1 if the given numbers, each used once, make 24, and 0.01 otherwise.

    The library accepts any four numbers, so that `8*3*1*1` would solve every puzzle.
    """
    try:
        value = int(read_expression(answer, NUMBERS))
    except Exception:  # noqa: BLE001 - like the library, treat expressions that sympy cannot evaluate as wrong, here and below
        return 0.01
    return 1.0 if value == 24 and _uses_each_once(answer, entry) else 0.01


def countdown(_dataset: Any, answer: str, entry: Entry) -> float:
    """Return 1 if the given numbers, each used once, make the target, and 0.05 for other arithmetic."""
    try:
        value = float(read_expression(answer, NUMBERS))
    except Exception:  # noqa: BLE001
        return 0.01
    is_target = np.isclose(value, entry["metadata"]["target"], atol=1e-6)
    return 1.0 if is_target and _uses_each_once(answer, entry) else 0.05


def _uses_each_once(answer: str, entry: Entry) -> bool:
    """Return whether an answer uses exactly the given numbers.

    The library searches only for integers: it misses `543e0`, reads `4.8` as two numbers, and counts
    unused numbers after a `#`.
    """
    numbers = [number.rstrip(".") for number in _NUMBER.findall(answer)]
    if _COMMENTED.search(answer) or not all(map(str.isdecimal, numbers)):
        return False
    return sorted(map(int, numbers)) == sorted(entry["metadata"]["numbers"])


def polynomial_multiplication(_dataset: Any, answer: str, entry: Entry) -> float:
    """Return 1 for the product with terms in any order. Like in the library, an unexpanded form is wrong."""
    try:
        product = read_expression(answer, POLYNOMIALS)
        return float(product == read_expression(entry["answer"], POLYNOMIALS))
    except Exception:  # noqa: BLE001
        return 0.0


def integration(_dataset: Any, answer: str, entry: Entry) -> float:
    """Return 1 for any expression whose derivative is the integrand."""
    variable = entry["metadata"]["variable"]
    try:
        antiderivative = read_expression(answer, INTEGRALS, variables=(variable, "C"))
        integrand = read_expression(entry["metadata"]["integrand"], INTEGRALS, variables=(variable,))
        return float(sympy.simplify(sympy.diff(antiderivative, sympy.Symbol(variable)) - integrand) == 0)
    except Exception:  # noqa: BLE001
        return 0.0


def bitwise_arithmetic(_dataset: Any, answer: str, entry: Entry) -> float:
    """Return 1 for the number in any base that Python supports."""
    try:
        return float(int(answer, 0) == int(entry["answer"], 0))
    except ValueError:
        return 0.0


def complex_arithmetic(dataset: Any, answer: str, entry: Entry) -> float:
    """Return the library's score, but 0 for NaN, which the library would treat as exact."""
    return 0.0 if "nan" in answer.lower() else float(dataset.score_answer(answer, entry))


def number_sorting(dataset: Any, answer: str, entry: Entry) -> float:
    """Return the library's score, but 0 for NaN. The expected list is converted to JSON, so it is not
    evaluated.
    """
    expected = dumps(read_literal(entry["answer"]))
    return (
        0.0 if "nan" in answer.lower() else float(dataset.score_answer(answer, {**entry, "answer": expected}))
    )


CHECKERS: Mapping[str, Checker] = MappingProxyType(
    {
        "binary_matrix": binary_matrix,
        "bitwise_arithmetic": bitwise_arithmetic,
        "complex_arithmetic": complex_arithmetic,
        "countdown": countdown,
        "intermediate_integration": integration,
        "n_queens": n_queens,
        "number_sorting": number_sorting,
        "polynomial_multiplication": polynomial_multiplication,
        "puzzle24": puzzle24,
        "simple_integration": integration,
        "spiral_matrix": spiral_matrix,
        "string_insertion": string_insertion,
    }
)
"""Replacement checkers by task."""
