"""Parse arithmetic and algebra in the notation of models to sympy objects, without an evaluator.

The grammar is the part of sympy's `parse_expr` that honest answers use, with the same meaning: Python's
operators and their precedence, `!` for factorials, names that are variables unless they name a function or a
constant, and `^` for the exclusive or of integers. Text is never passed on as code or as a string that sympy
would parse: numbers, variables and functions are built here, and sizes that could take long are bounded.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import sympy

MAX_CHARS = 4000
MAX_DEPTH = 60
MAX_DIGITS = 300
MAX_EXPONENT = 1000
MAX_BITS = 8192
"""Maximum number of bits of a power of numbers."""
MAX_FACTORIAL = 200

_TOKEN = re.compile(
    r"""(?:[ \t\f]|\#[^\n]*)*(?:
        (?P<number>(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]{1,3})?(?![\w.]))
        |(?P<name>[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)*(?!\w))
        |(?P<sign>\*[ \t]*\*|/[ \t]*/|!!?(?!=)|[-+*/%^(),])
        |(?P<line>\n)
        |(?P<end>\Z))""",
    re.VERBOSE,
)
_LEADING_ZERO = re.compile(r"0+[1-9][0-9]*")
_BINARY = {"^": 1, "+": 2, "-": 2, "*": 3, "/": 3, "//": 3, "%": 3}


class NotExpression(ValueError):
    """Raised for text outside of the grammar or beyond its limits."""


class Vocabulary(NamedTuple):
    """The names that an expression may use, and their meaning."""

    functions: Mapping[str, Callable[..., Any]]
    constants: Mapping[str, Any]
    has_variables: bool
    """True if all other names are variables."""


def read_expression(text: str, vocabulary: Vocabulary, *, variables: Iterable[str] = ()) -> Any:
    """Return the sympy object that a text denotes. Raise NotExpression for anything else.

    `variables` are treated as variables even if sympy gives them another meaning.
    """
    if len(text) > MAX_CHARS:
        raise NotExpression(f"longer than {MAX_CHARS} characters")
    parser = _Parser(text.strip(), vocabulary, frozenset(variables))
    value = parser.operation(lowest=0)
    if parser.kind != "end":
        raise NotExpression(f"unexpected {parser.word!r}")
    return value


class _Parser:
    """Parses the tokens of one text by precedence climbing."""

    def __init__(self, text: str, vocabulary: Vocabulary, variables: frozenset[str]) -> None:
        self._text, self._offset, self._depth, self._open_brackets = text, 0, 0, 0
        self._vocabulary, self._variables = vocabulary, variables
        self.kind = self.word = ""
        self._advance()

    def operation(self, *, lowest: int) -> Any:
        """Parse a value and the following binary operators that bind at least as tightly as `lowest`."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise NotExpression(f"nested more than {MAX_DEPTH} deep")
        value = self._parse_signed()
        while (binding := _BINARY.get(self.word, -1)) >= lowest:
            symbol = self._advance()
            value = _combine(value, symbol, self.operation(lowest=binding + 1))
        self._depth -= 1
        return value

    def _parse_signed(self) -> Any:
        signs = ""
        while self.word in ("+", "-"):
            signs += self._advance()
        value = self._power()
        return -value if signs.count("-") % 2 else +value

    def _power(self) -> Any:
        base = self._factorial()
        if self.word != "**":
            return base
        self._advance()
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise NotExpression(f"nested more than {MAX_DEPTH} deep")
        exponent = self._parse_signed()  # It is evaluated from the right, and a sign may follow: 2**-3**2.
        self._depth -= 1
        return power(base, exponent)

    def _factorial(self) -> Any:
        value = self._atom()
        while self.word in ("!", "!!"):
            value = factorial(value, twice=self._advance() == "!!")
        return value

    def _atom(self) -> Any:
        kind, word = self.kind, self.word
        if kind == "number":
            self._advance()
            return _number(word)
        if kind == "name":
            self._advance()
            return self._parse_call(word) if self.word == "(" else self._parse_name(word)
        if word == "(":
            [value] = self._parse_brackets(limit=1)
            return value
        raise NotExpression(f"unexpected {word or 'end'!r}")

    def _parse_brackets(self, *, limit: int) -> list[Any]:
        self._open_brackets += 1
        self._advance()
        values = [self.operation(lowest=0)]
        while self.word == "," and len(values) < limit:
            self._advance()
            values.append(self.operation(lowest=0))
        if self.word != ")":
            raise NotExpression("expected a closing bracket")
        self._open_brackets -= 1
        self._advance()
        return values

    def _parse_call(self, name: str) -> Any:
        function = None if name in self._variables else self._vocabulary.functions.get(name)
        if function is None:
            raise NotExpression(f"there is no function {name}")
        return function(*self._parse_brackets(limit=2))

    def _parse_name(self, name: str) -> Any:
        if name in self._variables:
            return sympy.Symbol(name)
        if name in self._vocabulary.constants:
            return self._vocabulary.constants[name]
        if self._vocabulary.has_variables and name not in _TAKEN.names:
            return sympy.Symbol(name)
        raise NotExpression(f"there is no variable {name}")

    def _advance(self) -> str:
        """Advance to the next token and return the previous word. Line breaks are allowed only in
        brackets.
        """
        previous, self.kind = self.word, "line"
        while self.kind == "line":
            match = _TOKEN.match(self._text, self._offset)
            if match is None or (match.lastgroup == "line" and not self._open_brackets):
                raise NotExpression(f"unexpected text at character {self._offset}")
            self._offset, self.kind = match.end(), match.lastgroup or ""
            self.word = match[self.kind].replace(" ", "").replace("\t", "")  # sympy treats `* *` as `**`
        return previous


class _Taken:
    """The names that cannot be variables because sympy or Python uses them."""

    @cached_property
    def names(self) -> frozenset[str]:
        import builtins
        import keyword

        return frozenset([*sympy.__all__, *dir(builtins), *keyword.kwlist])


_TAKEN = _Taken()


def power(base: Any, exponent: Any) -> Any:
    """Return base**exponent if it is small enough."""
    if base.is_Float or exponent.is_Float:
        _refuse_unless(_magnitude(base) <= MAX_EXPONENT and _magnitude(exponent) <= 10)
    if exponent.is_Rational:
        size = max(abs(exponent.p), exponent.q)
        _refuse_unless(size <= MAX_EXPONENT and size * _bits(base) <= MAX_BITS)
    return base**exponent


def factorial(value: Any, *, twice: bool = False) -> Any:
    """Return value! or value!! of a small nonnegative integer."""
    _refuse_unless(value.is_Integer and 0 <= value <= MAX_FACTORIAL)
    return sympy.factorial2(value) if twice else sympy.factorial(value)


def _combine(left_operand: Any, symbol: str, right_operand: Any) -> Any:
    match symbol:
        case "+":
            return left_operand + right_operand
        case "-":
            return left_operand - right_operand
        case "*":
            return left_operand * right_operand
        case "/":
            return left_operand / right_operand
        case "//":
            return left_operand // right_operand
        case "%":
            return left_operand % right_operand
        case _:
            _refuse_unless(left_operand.is_Integer and right_operand.is_Integer)
            return sympy.Integer(int(left_operand) ^ int(right_operand))


def _number(word: str) -> Any:
    if len(word) > MAX_DIGITS:
        raise NotExpression(f"a number of more than {MAX_DIGITS} digits")
    if not word.isdecimal():
        return sympy.Float(word)
    if _LEADING_ZERO.fullmatch(word):
        raise NotExpression("a leading zero")
    return sympy.Integer(int(word))


def _bits(value: Any) -> int:
    """Return the total number of bits of all integers in a value."""
    return sum(
        number.p.bit_length() + (number.q.bit_length() if number.q > 1 else 0)
        for number in value.atoms(sympy.Rational)
        if abs(number.p) > 1 or number.q > 1
    )


def _magnitude(value: Any) -> int:
    """Return the number of bits before or after the point of a float, or all bits of another number."""
    if value.is_Float:
        _, _, exponent, bits = value._mpf_
        return abs(int(exponent) + int(bits))
    return _bits(value)


def _refuse_unless(is_small: Any) -> None:
    if not is_small:
        raise NotExpression("the numbers become too large, or are of another kind")
