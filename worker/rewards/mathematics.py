"""Compare mathematical answers with math-verify. It may hang, so only the checking process calls it.

math-verify finds formulas with its own grammars, but passes what they accept (arithmetic, and each single
number through sympy's `Number`) to sympy's `parse_expr`, which evaluates text as Python code. While answers
are compared, our parser replaces it. Text that our parser does not support does not count as mathematics.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import math_verify.parser
import sympy
import sympy.physics.units  # imported by simplify(), which then has names to parse
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from math_verify.grader import is_relation
from sympy import FiniteSet
from sympy.parsing import sympy_parser

from worker.rewards.answers import has_order, list_items, strip_units
from worker.rewards.reasoning_gym.checkers import NUMBERS
from worker.rewards.reasoning_gym.expressions import NotExpression, read_expression
from worker.rewards.spelling import convert_decimals, for_algebra

NORMALIZATION = replace(LatexExtractionConfig().normalization_config, units=False)
"""Normalization without units, which are removed earlier, because the library's units include single
letters that may be variables.
"""
EXTRACTION = [
    LatexExtractionConfig(boxed_match_priority=0, normalization_config=NORMALIZATION),
    ExprExtractionConfig(),
]
EVALUATING = (sympy_parser, math_verify.parser)
"""Modules in which `parse_expr` is looked up. sympy's `sympify` uses the first one."""


def is_equal(*, expected: str, answer: str, is_ordered: bool = False) -> bool:
    """Return whether two answers, in LaTeX or plain text, are equal, such as 2x+2 and 2(x+1).

    If it `is_ordered`, the items of a list are compared one by one.
    """
    items = list_items(expected), list_items(answer)
    if len(items[0]) > 1 and (is_ordered or has_order(expected, answer)):
        pairs = zip(*items, strict=False)
        return len(items[0]) == len(items[1]) and all(_is_equal(*strip_units(*pair)) for pair in pairs)
    return _is_equal(*strip_units(expected, answer))


def _is_equal(expected: str, answer: str) -> bool:
    # math-verify's time limits are off, because they need signals in the main thread and cannot interrupt C
    # code.
    with forbid_evaluation():
        parsed_expected = _parse(for_algebra(expected).replace(r"\%", "").replace("%", ""))
        parsed_answer = _parse(convert_decimals(for_algebra(answer)))
        if (
            " or " in answer
            and parsed_expected
            and parsed_answer
            and not isinstance(parsed_expected[0], FiniteSet)
        ):
            parsed_answer[0] = _solution_set(parsed_answer[0])
        return bool(
            verify(parsed_expected, parsed_answer, timeout_seconds=None, allow_set_relation_comp=True)
        )


def _solution_set(value: Any) -> Any:
    """Return the union of the intervals of inequalities in one variable, such as x < 0 or x > 1."""
    if isinstance(value, FiniteSet) and len(value.free_symbols) == 1 and all(map(is_relation, value.args)):
        return sympy.Union(*[relation.as_set() for relation in value.args])
    return value


def _parse(text: str) -> Any:
    return parse(f"\\boxed{{{text}}}", EXTRACTION, parsing_timeout=None)


@contextmanager
def forbid_evaluation() -> Iterator[None]:
    """Prevent the evaluation of text as code in the block."""
    original_parsers = [module.parse_expr for module in EVALUATING]
    try:
        for module in EVALUATING:
            module.parse_expr = _read
        yield
    finally:
        for module, function in zip(EVALUATING, original_parsers, strict=True):
            module.parse_expr = function


def _read(text: str, *_: Any, **__: Any) -> Any:
    try:
        return read_expression(text, NUMBERS)
    except NotExpression as error:
        raise SyntaxError(str(error)) from error  # the error that callers of parse_expr expect
