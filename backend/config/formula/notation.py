"""Convert formulas from lines of Unicode text to MathML.

Names that users have chosen are enclosed in marks by `word` and `term`, so that they are not read as symbols.
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


def mark_word(text: str) -> str:
    """Enclose a name that the legend does not explain in marks."""
    return f"{_WORD}{text.replace(_WORD, '')}{_WORD}"


def term(text: str) -> str:
    """Enclose a name that the legend explains in marks."""
    return f"{_TERM}{text}{_TERM}"


def is_atom(text: str) -> bool:
    """Return whether a formula can be a factor without brackets."""
    previous = None
    while text != previous:
        previous, text = text, re.sub(r"\([^()]*\)|\[[^\[\]]*\]|\|[^|]*\|", "", text)
    return not re.search(r"(^| )[+−=/·] ", text)


def factor(text: str) -> str:
    """Return a formula as a factor of a product, in brackets if it is a sum."""
    return text if is_atom(text) else f"({text})"


def fraction(numerator: str, denominator: str) -> str:
    """Return the fraction above / below. A short one is written without spaces."""
    is_short = is_atom(numerator) and is_atom(denominator) and len(numerator + denominator) < 14
    return f"{factor(numerator)}{'/' if is_short else ' / '}{factor(denominator)}"


class Block(NamedTuple):
    """Several lines of formulas."""

    text: str
    mathml: str
    symbols: dict[str, str]
    """MathML of each symbol in the formulas, by symbol, in order of appearance."""


def make_block(lines: Iterable[str], names: Iterable[str]) -> Block:
    """Convert lines of formulas, given the names of all symbols. Raises LookupError for an unknown name."""
    reader = _Reader(names)
    lines = list(lines)
    cells = "".join(
        f'<mtr><mtd style="text-align: left"><mrow>{reader.read(line)}</mrow></mtd></mtr>' for line in lines
    )
    text = "\n".join(lines).replace(_WORD, "").replace(_TERM, "")
    mathml = f'<math xmlns="{_NAMESPACE}" display="block"><mtable>{cells}</mtable></math>'
    return Block(text, mathml, reader.symbols)


def math_element(mathml: str) -> str:
    """Wrap MathML in a math element."""
    return f'<math xmlns="{_NAMESPACE}">{mathml}</math>'


class _Token(NamedTuple):
    kind: str
    text: str
    is_next: bool
    """Whether it follows the previous token without a space."""


class _Operand(NamedTuple):
    mathml: str
    unbracketed: str
    """MathML without enclosing round brackets, which a fraction or root does not need."""


class _Reader:
    """A recursive-descent parser: rows contain fractions, fractions operands, and bracketed operands rows."""

    def __init__(self, names: Iterable[str]) -> None:
        self.symbols: dict[str, str] = {}
        self.pattern = _pattern(frozenset(names))

    def read(self, line: str) -> str:
        """Convert a line to MathML."""
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
        """Consume the next token and return its text, if it has one of the
        kinds and follows without a space.
        """
        if self._is_joined() and self.tokens[0].kind in kinds:
            return self.tokens.pop(0).text
        return None

    def _is_before(self, text: str) -> bool:
        return bool(self.tokens) and self.tokens[0].text == text

    def _is_joined(self) -> bool:
        """Return whether the next token follows without a space."""
        return bool(self.tokens) and self.tokens[0].is_next

    def _row(self, closing_bracket: str) -> str:
        mathml, previous_kind = "", ""
        while self.tokens and self.tokens[0].text != closing_bracket:
            token = self.tokens.pop(0)
            match token.kind:
                case "words":
                    word_texts = [token.text]
                    while self.tokens and self.tokens[0].kind == "words":
                        word_texts.append(self.tokens.pop(0).text)
                    gap = "" if self._is_before(",") else "\N{NO-BREAK SPACE}"
                    mathml += f"<mtext>\N{NO-BREAK SPACE}{' '.join(word_texts)}{gap}</mtext>"
                case "sum":
                    mathml += self._sum(token.text)
                case "sign":
                    form = ' form="prefix"' if token.text == "−" and self._is_joined() else ""
                    mathml += f"<mo{form}>{escape(token.text)}</mo>"
                case _:
                    mathml += _THIN_SPACE if previous_kind == "operand" else ""
                    mathml += self._fraction(token)
            previous_kind = token.kind if token.kind in ("words", "sum", "sign") else "operand"
        return mathml

    def _fraction(self, token: _Token) -> str:
        numerator = self._operand(token)
        if not self.tokens or self.tokens[0].kind != "over":
            return numerator.mathml
        self.tokens.pop(0)
        denominator = self._operand(self.tokens.pop(0))
        return f"<mfrac><mrow>{numerator.unbracketed}</mrow><mrow>{denominator.unbracketed}</mrow></mfrac>"

    def _operand(self, token: _Token) -> _Operand:
        operand = self._plain(token)
        if exponent := self._next("raised"):
            mathml = f"<msup>{operand.mathml}{_RAISED[exponent]}</msup>"
            return _Operand(mathml, mathml)
        return operand

    def _plain(self, token: _Token) -> _Operand:
        match token.kind:
            case "open" | "bar":
                return self._brackets(token.text)
            case "root":
                mathml = f"<msqrt>{self._operand(self.tokens.pop(0)).unbracketed}</msqrt>"
            case "number":
                mathml = f"<mn>{token.text}</mn>"
            case "log":
                mathml = "<mi>log</mi>"
            case "word" | "term":
                mathml = f"<mtext>{escape(token.text)}</mtext>"
            case _:
                mathml = _drawn_symbol(token.text)
        if token.kind in ("symbol", "term"):
            self.symbols.setdefault(token.text, mathml)
        if token.kind == "symbol" and (bracket := self._next("open")):
            mathml = f"<mrow>{mathml}{self._brackets(bracket).mathml}</mrow>"
        return _Operand(mathml, mathml)

    def _brackets(self, opening: str) -> _Operand:
        content = self._row(_CLOSING[opening])
        self.tokens.pop(0)
        # operators stretch with their content, in some fonts even around a single letter
        tag = "mo" if re.search("<mfrac|<munder|<msqrt", content) else "mtext"
        mathml = f"<mrow><{tag}>{opening}</{tag}>{content}<{tag}>{_CLOSING[opening]}</{tag}></mrow>"
        return _Operand(mathml, content if opening == "(" else mathml)

    def _sum(self, text: str) -> str:
        """Convert a sum or product sign. The legend explains its index without a limit."""
        operator, index = text[0], text[1:].lstrip("_").translate(_SUBSCRIPTS)
        name = f"{operator}ₖ" if index.startswith("k<") else text
        self.symbols.setdefault(name, _drawn_sum(operator, index.partition("<")[0]))
        return _drawn_sum(operator, index)


@cache
def _pattern(names: frozenset[str]) -> re.Pattern[str]:
    symbols = "|".join(
        re.escape(name) for name in sorted(names, key=len, reverse=True) if name[0] not in "∑∏"
    )
    return re.compile(
        rf"(?P<gap> *)(?:{_WORD}(?P<word>[^{_WORD}]*){_WORD}|{_TERM}(?P<term>[^{_TERM}]*){_TERM}"
        r"|(?P<sum>[∑∏](?:[ᵢₜⱼₖ]|_\w(?:[∈≤<]\w+| correct)?))"
        rf"|(?P<symbol>(?:{symbols})(?![0-9A-Za-zᵢₜⱼₖ_′]))|(?P<log>log\b)"
        r"|(?P<number>−?\d+(?:\.\d+)?(?:e[−+]\d+)?)|(?P<raised>[²ᵏᵐ])"
        r"|(?P<words>a|[a-z][a-z'-]+;?)(?![\w(])"
        r"|(?P<open>[(\[])|(?P<bar>[|‖])|(?P<close>[)\]])|(?P<root>√)|(?P<over>/)|(?P<sign>[^\w\s]))"
    )


def _drawn_sum(operator: str, index: str) -> str:
    return f"<munder><mo>{operator}</mo><mi>{escape(index)}</mi></munder>"


def _drawn_symbol(name: str) -> str:
    if name.startswith("|"):
        return f"<mrow><mtext>|</mtext>{_drawn_symbol(name.strip('|'))}<mtext>|</mtext></mrow>"
    head, _, subscript = name.partition("_")
    if not subscript:
        head = name.rstrip("ᵢₜⱼₖ")
        subscript = name[len(head) :].translate(_SUBSCRIPTS)
    mathml = f"<mi>{escape(head)}</mi>"
    return f"<msub>{mathml}<mi>{escape(subscript)}</mi></msub>" if subscript else mathml
