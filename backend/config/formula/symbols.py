"""Symbols that several parts of the formula share."""

from backend.config.formula.mathml import Math, bracketed, call, explained, fraction, number, row, symbol
from backend.config.objective import Objective

ADVANTAGE = symbol("A", "i")
REWARD = symbol("R", "i")
SUM = symbol("reward", "i")
"""A completion's reward, if the KL or a critic still changes it."""
COMPLETION = symbol("o", "i")
TOKEN = symbol("o", "it")
LENGTH = explained(bracketed(COMPLETION, "||"))
POLICY = call("π", TOKEN)
ONE = number(1)
LIMIT = 20
"""Nats; log-ratios and distances end there, as in worker/objective."""


def is_per_token(objective: Objective) -> bool:
    """Return whether the tokens of a completion have separate advantages."""
    return objective.advantage.judges_tokens or objective.token_weight.varies


def advantage_of(objective: Objective) -> Math:
    """Return the advantage, of a token or of a completion."""
    return symbol("A", "it") if is_per_token(objective) else ADVANTAGE


def limited(log_ratio: Math) -> Math:
    """A logarithm of a ratio within its limits."""
    return call("clip", log_ratio, number(-LIMIT), number(LIMIT))


def limited_ratio(ratio: Math) -> Math:
    """A ratio whose logarithm is within its limits."""
    return call("clip", ratio, call("exp", number(-LIMIT)), call("exp", number(LIMIT)))


def log_of(above: str, below: str) -> Math:
    """Return the logarithm of the ratio of a token's probabilities under two policies."""
    return row("log", bracketed(fraction(call(above, TOKEN), call(below, TOKEN))))._replace(is_atom=True)


def is_reward_intermediate(objective: Objective) -> bool:
    """Return whether more happens to a completion's reward before it is compared: the KL, or a critic."""
    return objective.critic is not None or objective.kl_in_reward
