"""Formulas as lines of Unicode text, as a paper prints them, and the MathML that such a line stands for.

What a user has named stands between marks, which `word` and `term` write: it is never taken for a symbol.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from html import escape
from typing import NamedTuple

_NAMESPACE = "http://www.w3.org/1998/Math/MathML"
_SUBSCRIPTS = str.maketrans("ᵢₜⱼₖ", "itjk")
_RAISED = {"²": "<mn>2</mn>", "ᵏ": "<mi>k</mi>", "ᵐ": "<mi>m</mi>"}
_CLOSING = {"(": ")", "[": "]", "|": "|", "‖": "‖"}
_THIN_SPACE = "<mtext>\N{THIN SPACE}</mtext>"
_WORD, _TERM = "\x01", "\x02"


def number(value: float) -> str:
    """Return a number in its shortest form."""
    return f"{value:g}".replace("-", "\N{MINUS SIGN}")


def word(text: str) -> str:
    """Return a name that no legend explains."""
    return f"{_WORD}{text.replace(_WORD, '')}{_WORD}"


def term(text: str) -> str:
    """Return a name that a legend explains."""
    return f"{_TERM}{text}{_TERM}"


def is_atom(text: str) -> bool:
    """Return whether a formula needs no brackets as a factor."""
    before = None
    while text != before:
        before, text = text, re.sub(r"\([^()]*\)|\[[^\[\]]*\]|\|[^|]*\|", "", text)
    return not re.search(r"(^| )[+−=/·] ", text)


def factor(text: str) -> str:
    """Return a formula as a factor of a product: a sum gets brackets."""
    return text if is_atom(text) else f"({text})"


def fraction(above: str, below: str) -> str:
    """Return above / below; short ones are written without spaces."""
    is_short = is_atom(above) and is_atom(below) and len(above + below) < 14
    return f"{factor(above)}{'/' if is_short else ' / '}{factor(below)}"


class Block(NamedTuple):
    """Lines of formulas, one under the other."""

    text: str
    mathml: str
    symbols: dict[str, str]
    """MathML of each symbol that a legend has to explain, in order of appearance."""


def make_block(lines: Iterable[str], names: Iterable[str]) -> Block:
    """Return lines in both forms, given the names of all symbols. Raises LookupError if a name is unknown."""
    reader = _Reader(names)
    lines = list(lines)
    cells = "".join(
        f'<mtr><mtd style="text-align: left"><mrow>{reader.read(line)}</mrow></mtd></mtr>' for line in lines
    )
    text = "\n".join(lines).replace(_WORD, "").replace(_TERM, "")
    drawn = f'<math xmlns="{_NAMESPACE}" display="block"><mtable>{cells}</mtable></math>'
    return Block(text, drawn, reader.symbols)


def math_element(mathml: str) -> str:
    """Return a piece as a separate element."""
    return f'<math xmlns="{_NAMESPACE}">{mathml}</math>'


class _Token(NamedTuple):
    kind: str
    text: str
    is_next: bool
    """Whether no space precedes it."""


class _Operand(NamedTuple):
    mathml: str
    inner: str
    """The same without its round brackets, which a fraction and a root do not need."""


class _Reader:
    """Reads lines by descent: a row has fractions, a fraction operands, and an operand in brackets a row."""

    def __init__(self, names: Iterable[str]) -> None:
        self.symbols: dict[str, str] = {}
        self.pattern = _pattern(frozenset(names))

    def read(self, line: str) -> str:
        """Return the MathML of a line."""
        self.tokens = list(self._tokens(line))
        return self._row("")

    def _tokens(self, line: str) -> Iterator[_Token]:
        end = 0
        while end < len(line):
            match = self.pattern.match(line, end)
            if match is None:
                raise LookupError(
                    f"{line[end:].strip()} stands in a formula without a meaning: add it to MEANINGS of "
                    "the module that writes it"
                )
            kind = str(match.lastgroup)
            yield _Token(kind, match[kind], not match["gap"])
            end = match.end()

    def _next(self, *kinds: str) -> str | None:
        """Take the next token and return its text if it is of such a kind and follows without a space."""
        if self._is_joined() and self.tokens[0].kind in kinds:
            return self.tokens.pop(0).text
        return None

    def _is_before(self, text: str) -> bool:
        return bool(self.tokens) and self.tokens[0].text == text

    def _is_joined(self) -> bool:
        """Return whether the next token follows without a space."""
        return bool(self.tokens) and self.tokens[0].is_next

    def _row(self, closing: str) -> str:
        drawn, before = "", ""
        while self.tokens and self.tokens[0].text != closing:
            token = self.tokens.pop(0)
            match token.kind:
                case "words":
                    words = [token.text]
                    while self.tokens and self.tokens[0].kind == "words":
                        words.append(self.tokens.pop(0).text)
                    gap = "" if self._is_before(",") else "\N{NO-BREAK SPACE}"
                    drawn += f"<mtext>\N{NO-BREAK SPACE}{' '.join(words)}{gap}</mtext>"
                case "sum":
                    drawn += self._sum(token.text)
                case "sign":
                    form = ' form="prefix"' if token.text == "−" and self._is_joined() else ""
                    drawn += f"<mo{form}>{escape(token.text)}</mo>"
                case _:
                    drawn += _THIN_SPACE if before == "operand" else ""
                    drawn += self._fraction(token)
            before = token.kind if token.kind in ("words", "sum", "sign") else "operand"
        return drawn

    def _fraction(self, token: _Token) -> str:
        above = self._operand(token)
        if not self.tokens or self.tokens[0].kind != "over":
            return above.mathml
        self.tokens.pop(0)
        below = self._operand(self.tokens.pop(0))
        return f"<mfrac><mrow>{above.inner}</mrow><mrow>{below.inner}</mrow></mfrac>"

    def _operand(self, token: _Token) -> _Operand:
        operand = self._plain(token)
        if raised := self._next("raised"):
            drawn = f"<msup>{operand.mathml}{_RAISED[raised]}</msup>"
            return _Operand(drawn, drawn)
        return operand

    def _plain(self, token: _Token) -> _Operand:
        match token.kind:
            case "open" | "bar":
                return self._brackets(token.text)
            case "root":
                drawn = f"<msqrt>{self._operand(self.tokens.pop(0)).inner}</msqrt>"
            case "number":
                drawn = f"<mn>{token.text}</mn>"
            case "log":
                drawn = "<mi>log</mi>"
            case "word" | "term":
                drawn = f"<mtext>{escape(token.text)}</mtext>"
            case _:
                drawn = _drawn_symbol(token.text)
        if token.kind in ("symbol", "term"):
            self.symbols.setdefault(token.text, drawn)
        if token.kind == "symbol" and (bracket := self._next("open")):
            drawn = f"<mrow>{drawn}{self._brackets(bracket).mathml}</mrow>"
        return _Operand(drawn, drawn)

    def _brackets(self, opening: str) -> _Operand:
        inner = self._row(_CLOSING[opening])
        self.tokens.pop(0)
        # an operator grows with what it holds, and some fonts let it grow around a plain letter too
        tag = "mo" if re.search("<mfrac|<munder|<msqrt", inner) else "mtext"
        drawn = f"<mrow><{tag}>{opening}</{tag}>{inner}<{tag}>{_CLOSING[opening]}</{tag}></mrow>"
        return _Operand(drawn, inner if opening == "(" else drawn)

    def _sum(self, text: str) -> str:
        """Draw a sign of a sum or product; the legend explains its index without a limit."""
        sign, index = text[0], text[1:].lstrip("_").translate(_SUBSCRIPTS)
        name = f"{sign}ₖ" if index.startswith("k<") else text
        self.symbols.setdefault(name, _drawn_sum(sign, index.partition("<")[0]))
        return _drawn_sum(sign, index)


@cache
def _pattern(names: frozenset[str]) -> re.Pattern[str]:
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True) if name[0] not in "∑∏")
    return re.compile(
        rf"(?P<gap> *)(?:{_WORD}(?P<word>[^{_WORD}]*){_WORD}|{_TERM}(?P<term>[^{_TERM}]*){_TERM}"
        r"|(?P<sum>[∑∏](?:[ᵢₜⱼₖ]|_\w(?:[∈≤<]\w+| correct)?))"
        rf"|(?P<symbol>(?:{known})(?![0-9A-Za-zᵢₜⱼₖ_′]))|(?P<log>log\b)"
        r"|(?P<number>−?\d+(?:\.\d+)?(?:e[−+]\d+)?)|(?P<raised>[²ᵏᵐ])"
        r"|(?P<words>a|[a-z][a-z'-]+;?)(?![\w(])"
        r"|(?P<open>[(\[])|(?P<bar>[|‖])|(?P<close>[)\]])|(?P<root>√)|(?P<over>/)|(?P<sign>[^\w\s]))"
    )


def _drawn_sum(sign: str, index: str) -> str:
    return f"<munder><mo>{sign}</mo><mi>{escape(index)}</mi></munder>"


def _drawn_symbol(name: str) -> str:
    if name.startswith("|"):
        return f"<mrow><mtext>|</mtext>{_drawn_symbol(name.strip('|'))}<mtext>|</mtext></mrow>"
    head, _, below = name.partition("_")
    if not below:
        head = name.rstrip("ᵢₜⱼₖ")
        below = name[len(head) :].translate(_SUBSCRIPTS)
    drawn = f"<mi>{escape(head)}</mi>"
    return f"<msub>{drawn}<mi>{escape(below)}</mi></msub>" if below else drawn
