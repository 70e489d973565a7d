"""Formulas of token weights, which distinguish the tokens of a completion."""

from typing import assert_never

from backend.config import knobs
from backend.config.formula.notation import factor, number


def token_weighted(value: str, knob: knobs.TokenWeight) -> str:
    """Return the formula of a token's advantage from that of the completion."""
    match knob:
        case knobs.NoTokenWeight() | knobs.Lopti():
            return value
        case knobs.AdvantageReweighting(alpha=alpha):
            return f"{factor(value)} ({number(alpha)} π_old(oᵢₜ) + {number(1 - alpha)})"
        case knobs.TopEntropy(q=q):
            return f"{factor(value)} where H_sampler in the highest {number(q)} of the step, else 0"
        case _:
            assert_never(knob)


def trained_term(term: str, knob: knobs.TokenWeight) -> str:
    """Return a token's term, multiplied by U if an update trains only some tokens."""
    return f"Uᵢₜ {factor(term)}" if isinstance(knob, knobs.Lopti) else term


def trained_definition(knob: knobs.TokenWeight) -> list[str]:
    """Return the definitions of U, which selects the tokens that each update trains."""
    if not isinstance(knob, knobs.Lopti):
        return []
    first_relation, second_relation = ("<", "≥") if knob.eta > 0 else ("≥", "<")
    bound = number(abs(knob.eta))
    return [
        f"Uᵢₜ = 1 where π_old(oᵢₜ) {first_relation} {bound} in a first update, else 0",
        f"Uᵢₜ = 1 where π_old(oᵢₜ) {second_relation} {bound} in a second one, else 0",
    ]


MEANINGS = {
    "Uᵢₜ": "1 for the tokens that an update trains",
}
"""Meanings of the symbols that this module writes."""
