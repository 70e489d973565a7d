"""Equality of mathematical answers by math-verify. It may hang: only the checking process calls it.

math-verify finds formulas by grammars of its own, but gives what they let through (arithmetic, and each
single number by way of sympy's `Number`) to sympy's `parse_expr`, which evaluates text as Python code. While
answers are compared, our parser stands in its place: what it does not know is no mathematics.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import math_verify.parser
import sympy.physics.units  # noqa: F401 - simplify() imports it, and it has names of its own to read then
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify
from sympy.parsing import sympy_parser

from worker.rewards.answers import for_algebra
from worker.rewards.reasoning_gym.checkers import NUMBERS
from worker.rewards.reasoning_gym.expressions import NotExpression, read_expression

EXTRACTION = [LatexExtractionConfig(boxed_match_priority=0), ExprExtractionConfig()]
EVALUATING = (sympy_parser, math_verify.parser)
"""Where `parse_expr` is looked up; sympy's `sympify` takes it from the first."""


def is_equal(*, expected: str, found: str) -> bool:
    """Whether two answers, LaTeX or plain, mean the same: 1/2 and 0.5, 2x+2 and 2(x+1), {1,2} and {2,1}."""
    # math-verify's own limits need signals of the main thread and cannot interrupt C code: they are off
    with without_evaluator():
        texts = [f"\\boxed{{{for_algebra(text)}}}" for text in (expected, found)]
        sides = [parse(text, EXTRACTION, parsing_timeout=None) for text in texts]
        return bool(verify(*sides, timeout_seconds=None))


@contextmanager
def without_evaluator() -> Iterator[None]:
    """No text becomes code inside of this."""
    before = [module.parse_expr for module in EVALUATING]
    try:
        for module in EVALUATING:
            module.parse_expr = _read
        yield
    finally:
        for module, function in zip(EVALUATING, before, strict=True):
            module.parse_expr = function


def _read(text: str, *_: Any, **__: Any) -> Any:
    try:
        return read_expression(text, NUMBERS)
    except NotExpression as error:
        raise SyntaxError(str(error)) from error  # what callers of parse_expr expect
