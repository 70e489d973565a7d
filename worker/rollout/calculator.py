"""A calculator for exact arithmetic on short expressions, without `eval` and with bounded numbers."""

import ast
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

MAX_CHARACTERS = 200

MAX_BITS = 4096
"""Maximum number of bits of a numerator or denominator at any point of the computation."""

OPERATOR_SPELLINGS = str.maketrans({"×": "*", "÷": "/", "−": "-", "^": "**"})


class BadExpression(Exception):
    """Raised for text that is not arithmetic, or whose value is too large."""


def calculate(expression: str) -> str:
    """Return the value of an expression as an integer or a decimal with 12 digits, or raise BadExpression.

    >>> calculate("12*(3+4)"), calculate("1/3")
    ('84', '0.333333333333')
    """
    text = expression.strip().translate(OPERATOR_SPELLINGS)
    if not text or len(text) > MAX_CHARACTERS:
        raise BadExpression(f"expected an expression of 1 to {MAX_CHARACTERS} characters")
    try:
        tree = ast.parse(text, mode="eval")
        value = _value(tree.body)
    except ZeroDivisionError:
        raise BadExpression("division by zero") from None
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        raise BadExpression("expected numbers, + - * / // % ** and parentheses") from None
    return _format_value(value)


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _check_bounds(Fraction(str(number)))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            return _value(operand)
        case ast.BinOp(left=left, op=ast.Pow(), right=right):
            return _check_bounds(_power(_value(left), _value(right)))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return _check_bounds(Fraction(OPERATORS[type(op)](_value(left), _value(right))))
    raise ValueError("no arithmetic")


OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    """Return an integer power, or raise BadExpression before computing one that is too large."""
    if exponent.denominator != 1:
        raise ValueError("expected a whole exponent")
    if _bits(base) * abs(exponent.numerator) > MAX_BITS and abs(base) != 1 and base:
        raise BadExpression("the value is too large")
    return Fraction(base**exponent.numerator)


def _check_bounds(value: Fraction) -> Fraction:
    if _bits(value) > MAX_BITS:
        raise BadExpression("the value is too large")
    return value


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _format_value(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    try:
        return f"{float(value):.12g}"
    except OverflowError:
        raise BadExpression("the value is too large") from None
