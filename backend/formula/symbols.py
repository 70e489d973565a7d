"""Symbols that several parts of the formula share."""

from backend.config.objective import Objective
from backend.formula.mathml import bracketed, call, number, symbol

ADVANTAGE = symbol("A", "i")
REWARD = symbol("R", "i")
LENGTH = bracketed(symbol("o", "i"), "||")
POLICY = call("π", symbol("o", "it"))
ONE = number(1)
PER_COMPLETION = {"seq_geo", "seq_product"}
"""Ratios that all tokens of a completion share."""


def is_per_token(objective: Objective) -> bool:
    """Whether the tokens of a completion have advantages of their own."""
    return objective.critic is not None or objective.token_weight.type in {"ar", "top_entropy"}
