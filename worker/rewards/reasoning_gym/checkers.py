"""Replacement checkers for reasoning_gym tasks whose own checkers an answer can attack.

Nine of the library give answers to `eval` (literals) or to sympy's `parse_expr` (expressions), which
evaluates them too: a completion could run code and change later grades. Two more evaluate the expected
answer, and two give full marks to what is not a number at all. puzzle24 and countdown do so too if an answer
uses other numbers than the given ones. Every other score, partial credit included, is the library's.
"""

import re
from collections.abc import Callable, Mapping
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
    """Accept the string; a tenth for a list of its letters."""
    if answer == entry["answer"]:
        return 1.0
    try:
        return 0.1 if "".join(read_literal(answer)) == entry["answer"] else 0.0
    except (ValueError, TypeError):
        return 0.0


def spiral_matrix(_dataset: Any, answer: str, entry: Entry) -> float:
    """Accept the numbers separated by spaces; a tenth for a list of them."""
    expected, answer = entry["answer"].strip(), answer.strip()
    if not answer or answer == expected:
        return float(bool(answer))
    try:
        return 0.1 if " ".join(str(item) for item in read_literal(answer)) == expected else 0.0
    except (ValueError, TypeError):
        return 0.0


def binary_matrix(_dataset: Any, answer: str, entry: Entry) -> float:
    """Accept the rows; a tenth for a list of lists."""
    if answer == entry["answer"]:
        return 1.0
    try:
        rows = [" ".join(str(cell) for cell in row) for row in read_literal(answer)]
    except (ValueError, TypeError):
        return 0.0
    return 0.1 if "\n".join(rows) == entry["answer"] else 0.0


def n_queens(_dataset: Any, answer: str, entry: Entry) -> float:
    """Accept any board that solves the puzzle; half for a list of lists."""
    boards = entry["metadata"]["valid_answers"]
    if answer in boards:
        return 1.0
    try:
        return 0.5 if "\n".join(" ".join(row) for row in read_literal(answer)) in boards else 0.0
    except (ValueError, TypeError):
        return 0.0


def puzzle24(_dataset: Any, answer: str, entry: Entry) -> float:
    """Accept the given numbers, each used once, that make 24; a hundredth for anything else.

    The library accepts any four numbers, so that `8*3*1*1` would solve every puzzle.
    """
    try:
        value = int(read_expression(answer, NUMBERS))
    except Exception:  # noqa: BLE001 - as in the library, here and below: what sympy cannot take is wrong
        return 0.01
    return 1.0 if value == 24 and _uses_each_once(answer, entry) else 0.01


def countdown(_dataset: Any, answer: str, entry: Entry) -> float:
    """Accept the given numbers, each used once, that make the target; a twentieth for other arithmetic."""
    try:
        value = float(read_expression(answer, NUMBERS))
    except Exception:  # noqa: BLE001
        return 0.01
    is_target = np.isclose(value, entry["metadata"]["target"], atol=1e-6)
    return 1.0 if is_target and _uses_each_once(answer, entry) else 0.05


def _uses_each_once(answer: str, entry: Entry) -> bool:
    """Return whether an answer's numbers are the given ones.

    The library searches only for whole numbers: it misses `543e0`, reads `4.8` as two numbers, and counts
    unused numbers after a `#`.
    """
    numbers = [number.rstrip(".") for number in _NUMBER.findall(answer)]
    if _COMMENTED.search(answer) or not all(map(str.isdecimal, numbers)):
        return False
    return sorted(map(int, numbers)) == sorted(entry["metadata"]["numbers"])


def polynomial_multiplication(_dataset: Any, answer: str, entry: Entry) -> float:
    """Accept the product with terms in any order; as in the library, an unexpanded form is wrong."""
    try:
        product = read_expression(answer, POLYNOMIALS)
        return float(product == read_expression(entry["answer"], POLYNOMIALS))
    except Exception:  # noqa: BLE001
        return 0.0


def integration(_dataset: Any, answer: str, entry: Entry) -> float:
    """Accept any expression whose derivative is the integrand."""
    variable = entry["metadata"]["variable"]
    try:
        antiderivative = read_expression(answer, INTEGRALS, variables=(variable, "C"))
        integrand = read_expression(entry["metadata"]["integrand"], INTEGRALS, variables=(variable,))
        return float(sympy.simplify(sympy.diff(antiderivative, sympy.Symbol(variable)) - integrand) == 0)
    except Exception:  # noqa: BLE001
        return 0.0


def bitwise_arithmetic(_dataset: Any, answer: str, entry: Entry) -> float:
    """Accept the number, in any base that Python writes."""
    try:
        return float(int(answer, 0) == int(entry["answer"], 0))
    except ValueError:
        return 0.0


def complex_arithmetic(dataset: Any, answer: str, entry: Entry) -> float:
    """Return the library's score, but 0 for NaN, whose distance the library treats as none."""
    return 0.0 if "nan" in answer.lower() else float(dataset.score_answer(answer, entry))


def number_sorting(dataset: Any, answer: str, entry: Entry) -> float:
    """Return the library's score, but 0 for NaN; the expected list becomes JSON, so it is not evaluated."""
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
