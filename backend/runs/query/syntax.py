"""Parser for queries, which returns a tree by recursive descent in linear time.

    query      = and { "or" and }
    and        = not { ["and"] not }
    not        = "not" not | "(" query ")" | comparison | word
    comparison = field operator value | field ["not"] "in" "(" value { "," value } ")"
    field      = name | ("last" | "best") "(" name ")"
    operator   = "=" | "!=" | "<" | "<=" | ">" | ">=" | "~" | "!~"

A word without a comparison is searched for in names. Single or double quotes turn any text into a name or a
value; within them, a backslash escapes the next character.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from backend.base.errors import FieldError, InvalidRequest
from backend.base.text import UNSTORABLE_PATTERN

MAX_CHARACTERS = 2_000
MAX_DEPTH = 30
"""Maximum nesting of parentheses and `not`."""
MAX_COMPARISONS = 100
"""Maximum number of comparisons and words in a query, because SQLite limits expressions to 1,000 levels."""
MAX_VALUES = 700
"""Maximum number of values in a query, for the same reason."""

OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "~", "!~")
FUNCTIONS = ("last", "best")
KEYWORDS = ("and", "or", "not", "in")

TOKEN_PATTERN = re.compile(
    r"""\s*(?:
      (?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    | (?P<operator><=|>=|!=|!~|==|[=<>~])
    | (?P<mark>[(),])
    | (?P<word>(?:[^\s()=<>!~,"']|!(?![=~]))+)
    )""",
    re.VERBOSE | re.DOTALL,
)


class QueryError(InvalidRequest):
    """A query that cannot be parsed; `position` is the offset of the character with the error."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__([FieldError("query", message, position)])
        self.position = position


class Token(NamedTuple):
    """A token of a query."""

    kind: str
    """`word`, `string`, `operator`, `mark`, or `end`."""
    text: str
    """Text of the token, without the quotes of a string."""
    offset: int
    """Offset of the first character."""

    @property
    def keyword(self) -> str:
        """The keyword `and`, `or`, `not` or `in`; empty if the token is not a keyword."""
        return self.text.lower() if self.kind == "word" and self.text.lower() in KEYWORDS else ""

    @property
    def is_text(self) -> bool:
        """Whether the token can be a name or a value."""
        return self.kind == "string" or (self.kind == "word" and not self.keyword)


class Name(NamedTuple):
    """The name of a field; for a metric, `statistic` selects its `last` or `best` value."""

    text: str
    offset: int
    statistic: str = ""


class Value(NamedTuple):
    """A value as written in the query."""

    text: str
    offset: int
    is_quoted: bool = False


@dataclass(frozen=True, slots=True)
class Word:
    """Text to search for in names."""

    text: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison of a field with values, at least one of which must match."""

    name: Name
    operator: str
    offset: int
    """Offset of the operator."""
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Negation of the inner query."""

    operand: "Query"


@dataclass(frozen=True, slots=True)
class All:
    """Queries that must all match."""

    operands: tuple["Query", ...]


@dataclass(frozen=True, slots=True)
class Any:
    """Queries of which at least one must match."""

    operands: tuple["Query", ...]


Query = Word | Comparison | Not | All | Any


def parse(text: str) -> Query | None:
    """Return the tree of a query, or None if it is empty; raise QueryError if it is invalid."""
    if len(text) > MAX_CHARACTERS:
        reason = f"a query has at most {MAX_CHARACTERS:,} characters, got {len(text):,}"
        raise QueryError(reason, MAX_CHARACTERS)
    if unstorable := UNSTORABLE_PATTERN.search(text):
        raise QueryError("contains NUL or an unpaired surrogate", unstorable.start())
    tokens = list(_tokens(text))
    return _Parser(tokens).parse() if len(tokens) > 1 else None


def _tokens(text: str) -> "list[Token]":
    tokens: list[Token] = []
    end = len(text.rstrip())
    offset = 0
    while offset < end:
        match = TOKEN_PATTERN.match(text, offset, end)
        if match is None:
            start = offset + len(text[offset:]) - len(text[offset:].lstrip())
            if text[start] in "\"'":
                raise QueryError("this quotation mark is not closed", start)
            raise QueryError(f"{text[start]!r} is not expected here; != and !~ are operators", start)
        kind = match.lastgroup or ""
        lexeme = match[kind]
        if kind == "string":
            lexeme = re.sub(r"\\(.)", r"\1", lexeme[1:-1], flags=re.DOTALL)
        tokens.append(
            Token(kind, "=" if lexeme == "==" and kind == "operator" else lexeme, match.start(kind))
        )
        offset = match.end()
    return [*tokens, Token("end", "", end)]


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._comparisons = 0
        self._values = 0

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _after(self, count: int) -> Token:
        return self._tokens[min(self._at + count, len(self._tokens) - 1)]

    def _take(self) -> Token:
        token = self._next
        self._at += 1
        return token

    def parse(self) -> Query:
        """Return the tree of the query; raise QueryError if it is invalid."""
        query = self._any(0)
        if self._next.kind != "end":
            raise QueryError(f"{self._next.text!r} is not expected here", self._next.offset)
        return query

    def _any(self, depth: int) -> Query:
        operands = [self._all(depth)]
        while self._next.keyword == "or":
            self._take()
            operands.append(self._all(depth))
        return operands[0] if len(operands) == 1 else Any(tuple(operands))

    def _all(self, depth: int) -> Query:
        operands = [self._not(depth)]
        while self._next.keyword in ("and", "not") or self._next.is_text or self._next.text == "(":
            if self._next.keyword == "and":
                self._take()
            operands.append(self._not(depth))
        return operands[0] if len(operands) == 1 else All(tuple(operands))

    def _not(self, depth: int) -> Query:
        token = self._next
        if depth > MAX_DEPTH:
            raise QueryError(f"is nested deeper than {MAX_DEPTH} levels", token.offset)
        if token.keyword == "not":
            self._take()
            operand = self._not(depth + 1)
            return operand.operand if isinstance(operand, Not) else Not(operand)
        if token.kind == "mark" and token.text == "(":
            self._take()
            query = self._any(depth + 1)
            self._expect(")", f"the parenthesis at character {token.offset + 1} is not closed")
            return query
        if not token.is_text:
            description = "the end of the query" if token.kind == "end" else repr(token.text)
            raise QueryError(f"expected a field or a word, got {description}", token.offset)
        return self._comparison()

    def _comparison(self) -> Query:
        self._comparisons += 1
        if self._comparisons > MAX_COMPARISONS:
            raise QueryError(
                f"a query has at most {MAX_COMPARISONS} comparisons and words", self._next.offset
            )
        name = self._name()
        operator = self._next
        if operator.kind == "operator":
            self._take()
            return Comparison(name, operator.text, operator.offset, (self._value(),))
        if operator.keyword == "in":
            return self._one_of(name)
        if operator.keyword == "not" and self._after(1).keyword == "in":
            self._take()
            return Not(self._one_of(name))
        if name.statistic:
            raise QueryError(f"expected an operator: {', '.join(OPERATORS)} or in", operator.offset)
        return Word(name.text)

    def _name(self) -> Name:
        token = self._take()
        is_call = self._next.kind == "mark" and self._next.text == "(" and token.kind == "word"
        if not is_call or self._next.offset != token.offset + len(token.text):
            return Name(token.text, token.offset)
        if token.text.lower() not in FUNCTIONS:
            reason = f"there is no function {token.text!r}; last(metric) and best(metric) are known"
            raise QueryError(reason, token.offset)
        self._take()
        inner_token = self._take() if self._next.is_text else None
        if inner_token is None:
            raise QueryError("expected the name of a metric", self._next.offset)
        self._expect(")", "expected ) after the name of the metric")
        return Name(inner_token.text, inner_token.offset, token.text.lower())

    def _one_of(self, name: Name) -> Comparison:
        operator = self._take()
        self._expect("(", "expected ( after in")
        values = [self._value()]
        while self._next.kind == "mark" and self._next.text == ",":
            self._take()
            values.append(self._value())
        self._expect(")", "expected ) or a comma")
        return Comparison(name, "=", operator.offset, tuple(values))

    def _value(self) -> Value:
        token = self._next
        # After an operator, even `in` and `not` are values.
        if token.kind not in ("word", "string"):
            raise QueryError("expected a value; quote one that contains spaces or operators", token.offset)
        self._take()
        self._values += 1
        if self._values > MAX_VALUES:
            raise QueryError(f"a query has at most {MAX_VALUES} values", token.offset)
        return Value(token.text, token.offset, token.kind == "string")

    def _expect(self, symbol: str, reason: str) -> None:
        token = self._next
        if token.kind != "mark" or token.text != symbol:
            raise QueryError(reason, token.offset)
        self._take()
