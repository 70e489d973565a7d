"""Symbols that several parts of a formula share."""

from backend.config.objective import Objective

POLICY = "π(oᵢₜ)"
MAX_LOG_RATIO = 20
"""Limit of log-ratios and distances in nats, as in worker/objective."""


def is_per_token(objective: Objective) -> bool:
    """Return whether the tokens of a completion have separate advantages."""
    return objective.advantage.judges_tokens or objective.token_weight.varies


def advantage_symbol(objective: Objective) -> str:
    """Return the symbol of the advantage of a token or of a completion."""
    return "Aᵢₜ" if is_per_token(objective) else "Aᵢ"


def ratio_symbol(objective: Objective) -> str:
    """Return the symbol of the ratio of a token or of a completion."""
    return "rᵢ" if objective.ratio.is_shared else "rᵢₜ"


def limited_logarithm(log_ratio: str) -> str:
    """Return the formula of a clipped log-ratio."""
    return f"clip({log_ratio}, −{MAX_LOG_RATIO}, {MAX_LOG_RATIO})"


def limited_ratio(ratio: str) -> str:
    """Return the formula of a ratio that is clipped in log space."""
    return f"clip({ratio}, exp(−{MAX_LOG_RATIO}), exp({MAX_LOG_RATIO}))"


def log_probability_ratio(numerator: str, denominator: str) -> str:
    """Return the formula of the log-ratio of a token's probabilities under two policies."""
    return f"log ({numerator}(oᵢₜ) / {denominator}(oᵢₜ))"


def is_reward_intermediate(objective: Objective) -> bool:
    """Return whether the reward is changed by the KL or a critic before it is compared."""
    return objective.critic is not None or objective.kl_in_reward
