"""Small pieces of formulas that exist twice: as plain Unicode text and as MathML."""

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

_SUBSCRIPTS = {"i": "ᵢ", "t": "ₜ", "it": "ᵢₜ", "j": "ⱼ", "k": "ₖ", "ij": "ᵢⱼ"}
_THIN_SPACE = "\N{THIN SPACE}"
_NAMESPACE = "http://www.w3.org/1998/Math/MathML"
_RAISED = {"2": "²", "k": "ᵏ", "m": "ᵐ"}


class Symbol(NamedTuple):
    """A symbol that a legend explains, as text and as MathML."""

    text: str
    mathml: str


class Math(NamedTuple):
    """A piece of a formula in both forms."""

    text: str
    mathml: str
    is_atom: bool = True
    """Whether the text needs no brackets inside a fraction or a product."""
    symbols: tuple[Symbol, ...] = ()
    """Symbols that a legend has to explain, in order of appearance."""


def symbol(name: str, subscript: str = "") -> Math:
    """A variable, with a subscript perhaps: r and "it" give rᵢₜ."""
    if not subscript:
        return _explained(name, f"<mi>{escape(name)}</mi>")
    text = f"{name}{_SUBSCRIPTS.get(subscript, f'_{subscript}')}"
    drawn = f"<msub><mi>{escape(name)}</mi><mi>{escape(subscript)}</mi></msub>"
    return _explained(text, drawn)


def _explained(text: str, mathml: str) -> Math:
    return Math(text, mathml, symbols=(Symbol(text, mathml),))


def word(text: str, *, is_symbol: bool = False) -> Math:
    """A word upright: a name that a legend may have to explain."""
    math = _explained(text, f"<mtext>{escape(text)}</mtext>")
    return math if is_symbol else math._replace(symbols=())


def explained(body: Math) -> Math:
    """A piece that a legend explains as a whole."""
    return body._replace(symbols=(Symbol(body.text, body.mathml),))


def number(value: float) -> Math:
    """A number in its shortest form."""
    shown = f"{value:g}".replace("-", "\N{MINUS SIGN}")
    return Math(shown, f"<mn>{shown}</mn>")


def operator(sign: str) -> Math:
    """An operator, a bracket, or words between two pieces."""
    if sign == "log":
        return Math(sign, "<mi>log</mi>")
    if sign[0].isalpha():
        return Math(sign, f"<mtext>\N{NO-BREAK SPACE}{escape(sign)}\N{NO-BREAK SPACE}</mtext>")
    return Math(sign, f"<mo>{escape(sign)}</mo>")


def row(*parts: Math | str, gap: str = " ") -> Math:
    """Pieces side by side; a plain string is an operator."""
    pieces = [operator(piece) if isinstance(piece, str) else piece for piece in parts]
    return Math(
        gap.join(piece.text for piece in pieces).replace(" ,", ","),
        f"<mrow>{''.join(piece.mathml for piece in pieces)}</mrow>",
        is_atom=len(pieces) == 1 and pieces[0].is_atom,
        symbols=_symbols(pieces),
    )


def _symbols(pieces: Iterable[Math]) -> tuple[Symbol, ...]:
    return tuple(dict.fromkeys(symbol_ for piece in pieces for symbol_ in piece.symbols))


def bracketed(body: Math, brackets: str = "()") -> Math:
    """A piece in brackets."""
    drawn = "".join((_bracket(brackets[0], body.mathml), body.mathml, _bracket(brackets[1], body.mathml)))
    return Math(f"{brackets[0]}{body.text}{brackets[1]}", f"<mrow>{drawn}</mrow>", symbols=body.symbols)


def _bracket(sign: str, inside: str) -> str:
    """An operator grows with what it holds, and some fonts let it grow around a plain letter too."""
    is_tall = any(tag in inside for tag in ("<mfrac", "<munder", "<msqrt"))
    return f"<mo>{sign}</mo>" if is_tall else f"<mtext>{sign}</mtext>"


def call(name: str, *arguments: Math) -> Math:
    """A function of its arguments: min(a, b); what follows an underscore of its name is a subscript."""
    inner = ", ".join(argument.text for argument in arguments)
    listed = "<mo>,</mo>".join(argument.mathml for argument in arguments)
    called = symbol(*name.split("_", 1))
    return Math(
        f"{name}({inner})",
        f"<mrow>{called.mathml}{_bracket('(', listed)}{listed}{_bracket(')', listed)}</mrow>",
        symbols=_symbols((called, *arguments)),
    )


def constant(body: Math) -> Math:
    """Return sg[body], which carries no gradient."""
    return row(symbol("sg"), bracketed(body, "[]"), gap="")._replace(is_atom=True)


def product(*parts: Math) -> Math:
    """Factors side by side; sums among them get brackets."""
    factors = [factor if factor.is_atom else bracketed(factor) for factor in parts]
    drawn = f"<mtext>{_THIN_SPACE}</mtext>".join(factor.mathml for factor in factors)
    return row(*factors)._replace(mathml=f"<mrow>{drawn}</mrow>", is_atom=True)


def fraction(above: Math, below: Math) -> Math:
    """above / below."""
    top, bottom = (term.text if term.is_atom else f"({term.text})" for term in (above, below))
    gap = "" if above.is_atom and below.is_atom and len(top + bottom) < 14 else " "
    return Math(
        f"{top}{gap}/{gap}{bottom}",
        f"<mfrac>{above.mathml}{below.mathml}</mfrac>",
        is_atom=False,
        symbols=_symbols((above, below)),
    )


def power(body: Math, exponent: str) -> Math:
    """Return the body to a power whose exponent has a raised letter or digit."""
    raised, tag = _RAISED[exponent], "mn" if exponent.isdigit() else "mi"
    drawn = f"<msup>{body.mathml}<{tag}>{exponent}</{tag}></msup>"
    return Math(f"{body.text}{raised}", drawn, symbols=body.symbols)


def root(body: Math) -> Math:
    """Return the square root."""
    inner = body.text if body.is_atom else f"({body.text})"
    return Math(f"√{inner}", f"<msqrt>{body.mathml}</msqrt>", symbols=body.symbols)


def summed(index: str, body: Math, *, sign: str = "∑") -> Math:
    """Return a sum (or product) over an index: ∑ᵢ body; a limit of the index follows a < sign."""
    inner = body if body.is_atom else bracketed(body)
    full, plain = _sign(sign, index), _sign(sign, index.partition("<")[0])
    return Math(
        f"{full.text} {inner.text}",
        f"<mrow>{full.mathml}{inner.mathml}</mrow>",
        symbols=tuple(dict.fromkeys((plain, *inner.symbols))),
    )


def _sign(sign: str, index: str) -> Symbol:
    drawn = f"<munder><mo>{sign}</mo><mi>{escape(index)}</mi></munder>"
    return Symbol(f"{sign}{_SUBSCRIPTS.get(index, f'_{index}')}", drawn)


def alone(mathml: str) -> str:
    """Return a piece as a separate element."""
    return f'<math xmlns="{_NAMESPACE}">{mathml}</math>'


def lines(rows: list[Math]) -> Math:
    """A block of formulas, one under the other."""
    cells = "".join(f'<mtr><mtd style="text-align: left">{line.mathml}</mtd></mtr>' for line in rows)
    return Math(
        "\n".join(line.text for line in rows),
        f'<math xmlns="{_NAMESPACE}" display="block"><mtable>{cells}</mtable></math>',
        symbols=_symbols(rows),
    )
