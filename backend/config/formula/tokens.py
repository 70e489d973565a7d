"""The part of a formula that distinguishes the tokens of a completion."""

from typing import assert_never

from backend.config import knobs
from backend.config.formula.mathml import Math, call, number, product, row, symbol

_TOKEN = symbol("o", "it")
_TRAINED = symbol("U", "it")


def token_weighted(value: Math, knob: knobs.TokenWeight) -> Math:
    """Definition of a token's advantage, from the completion's."""
    match knob:
        case knobs.NoTokenWeight() | knobs.Lopti():
            return value
        case knobs.AdvantageReweighting(alpha=alpha):
            weight = row(product(number(alpha), call("π_old", _TOKEN)), "+", number(1 - alpha))
            return product(value, weight)
        case knobs.TopEntropy(q=q):
            top = row(symbol("H", "sampler"), "in the highest", number(q), "of the step")
            return row(product(value), "where", top, ",", "else", number(0))
        case _:
            assert_never(knob)


def trained(term: Math, knob: knobs.TokenWeight) -> Math:
    """Return a token's term, with U if an update trains only some tokens."""
    return product(_TRAINED, term) if isinstance(knob, knobs.Lopti) else term


def trained_definition(knob: knobs.TokenWeight) -> list[Math]:
    """Definition of U: the tokens that each update trains."""
    if not isinstance(knob, knobs.Lopti):
        return []
    bound = number(abs(knob.eta))
    rare, common = (row(call("π_old", _TOKEN), sign, bound) for sign in ("<", "≥"))
    first, second = (rare, common) if knob.eta > 0 else (common, rare)
    return [
        row(_TRAINED, "=", number(1), "where", first, "in a first update,", "else", number(0)),
        row(_TRAINED, "=", number(1), "where", second, "in a second one,", "else", number(0)),
    ]


MEANINGS = {
    "Uᵢₜ": "1 for the tokens that an update trains",
}
"""Meanings of the symbols that this module writes."""
