"""Symbols that several parts of the formula share."""

from backend.config.objective import Objective

POLICY = "π(oᵢₜ)"
LIMIT = 20
"""Nats; log-ratios and distances end there, as in worker/objective."""


def is_per_token(objective: Objective) -> bool:
    """Return whether the tokens of a completion have separate advantages."""
    return objective.advantage.judges_tokens or objective.token_weight.varies


def advantage_symbol(objective: Objective) -> str:
    """Return the advantage, of a token or of a completion."""
    return "Aᵢₜ" if is_per_token(objective) else "Aᵢ"


def ratio_symbol(objective: Objective) -> str:
    """Return the ratio, of a token or of a completion."""
    return "rᵢ" if objective.ratio.is_shared else "rᵢₜ"


def limited_logarithm(log_ratio: str) -> str:
    """Return a logarithm of a ratio within its limits."""
    return f"clip({log_ratio}, −{LIMIT}, {LIMIT})"


def limited_ratio(ratio: str) -> str:
    """Return a ratio whose logarithm is within its limits."""
    return f"clip({ratio}, exp(−{LIMIT}), exp({LIMIT}))"


def log_probability_ratio(above: str, below: str) -> str:
    """Return the logarithm of the ratio of a token's probabilities under two policies."""
    return f"log ({above}(oᵢₜ) / {below}(oᵢₜ))"


def is_reward_intermediate(objective: Objective) -> bool:
    """Return whether more happens to a completion's reward before it is compared: the KL, or a critic."""
    return objective.critic is not None or objective.kl_in_reward
