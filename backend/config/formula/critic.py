"""Formulas for token advantages and the loss of a critic."""

from backend.config import knobs
from backend.config.formula.notation import number
from backend.config.formula.symbols import limited_logarithm, log_probability_ratio
from backend.config.formula.weights import kl_weight
from backend.config.objective import Objective


def token_advantage(critic: knobs.Critic) -> str:
    """Return the formula of a token's advantage, before any token weight."""
    if isinstance(critic.scale, knobs.NoScale):
        return "Âᵢₜ"
    name = "std" if critic.scale.ddof == 1 else "std_population"
    return f"(Âᵢₜ − mean(Â_step)) / ({name}(Â_step) + {number(critic.scale.eps)})"


def critic_definitions(objective: Objective, critic: knobs.Critic) -> list[str]:
    """Return the definitions of the token advantage and of the critic's loss."""
    value = objective.value
    return [
        f"Âᵢₜ = {_discounted_sum(critic, critic.lambda_policy)}",
        *_lambda_definition(critic),
        f"δᵢₜ = Rᵢₜ + {_gamma(critic)}V_i,t+1 − Vᵢₜ",
        _token_reward(objective),
        f"L_V = {number(value.coef)} mean({_value_loss(value)})",
        f"Gᵢₜ = Vᵢₜ + {_discounted_sum(critic, critic.lambda_critic)}",
    ]


def _gamma(critic: knobs.Critic) -> str:
    return f"{number(critic.gamma)} " if critic.gamma != 1 else ""


def _discounted_sum(critic: knobs.Critic, lambda_: float | knobs.LengthAdaptive) -> str:
    total = f"∑_k<{critic.n_step}" if critic.n_step else "∑ₖ"
    if isinstance(lambda_, knobs.LengthAdaptive):
        gamma = _gamma(critic)
        decay = f"({gamma}λᵢ)" if gamma else "λᵢ"
    else:
        decay = number(round(critic.gamma * lambda_, 12))
    return f"{total} δ_i,t+k" if decay == "1" else f"{total} {decay}ᵏ δ_i,t+k"


def _lambda_definition(critic: knobs.Critic) -> list[str]:
    if not isinstance(critic.lambda_policy, knobs.LengthAdaptive):
        return []
    return [f"λᵢ = max(1 − 1/({number(critic.lambda_policy.alpha)} |oᵢ|), 0)"]


def _token_reward(objective: Objective) -> str:
    terminal_reward = "Rᵢₜ = rewardᵢ at the last token, else 0"
    kl = objective.kl
    if not objective.kl_in_reward or isinstance(kl, knobs.NoKl):
        return terminal_reward
    log_ratio = limited_logarithm(log_probability_ratio("π_old", "π_ref"))
    return f"{terminal_reward}, − {kl_weight(kl)} {log_ratio} at each token"


def _value_loss(value: knobs.Value) -> str:
    if not value.clip:
        return "1/2 (Vᵢₜ − Gᵢₜ)²"
    clipped_value = f"clip(Vᵢₜ, V_old − {number(value.clip)}, V_old + {number(value.clip)})"
    return f"1/2 max((Vᵢₜ − Gᵢₜ)², ({clipped_value} − Gᵢₜ)²)"


MEANINGS = {
    "Âᵢₜ": "generalized advantage estimate of a token",
    "Â_step": "the Âᵢₜ of all tokens of the step",
    "δᵢₜ": "how much better token t went than the critic expected",
    "δ_i,t+k": "the same k tokens later; 0 after the last token",
    "λᵢ": "weight of later tokens, larger for longer completions",
    "Vᵢₜ": "the critic's value before token t; units of reward; in δᵢₜ and Gᵢₜ as when the step opened",
    "V_i,t+1": "the critic's value before the next token; 0 after the last",
    "V_old": "Vᵢₜ as it was when the step opened, a constant",
    "Gᵢₜ": "what the critic should have said, a constant; units of reward",
    "L_V": "loss of the critic; its mean is over the tokens of the optimizer step",
}
"""Meanings of the symbols that this module writes."""
