"""The part of a formula that a critic adds: token advantages and the critic's own loss."""

from backend.config import knobs
from backend.config.formula.mathml import (
    Math,
    bracketed,
    call,
    fraction,
    number,
    power,
    product,
    row,
    summed,
    symbol,
)
from backend.config.formula.symbols import LENGTH, SUM, limited, log_of
from backend.config.formula.weights import kl_weight
from backend.config.objective import Objective

_VALUE = symbol("V", "it")
_NEXT_VALUE = symbol("V", "i,t+1")
_SURPRISE = symbol("δ", "it")
_GAE = symbol("Â", "it")
_RETURN = symbol("G", "it")
_REWARD = symbol("R", "it")


def token_advantage(critic: knobs.Critic) -> Math:
    """A token's advantage in terms of the estimate, before any token weight."""
    if isinstance(critic.scale, knobs.NoScale):
        return _GAE
    every = symbol("Â", "step")
    name = "std" if critic.scale.ddof == 1 else "std_population"
    spread = row(call(name, every), "+", number(critic.scale.eps))
    return fraction(row(_GAE, "−", call("mean", every)), spread)


def critic_definitions(objective: Objective, critic: knobs.Critic) -> list[Math]:
    """Definitions of the token advantage and of the loss that the critic minimises."""
    value = objective.value
    gamma = [number(critic.gamma)] if critic.gamma != 1 else []
    return [
        row(_GAE, "=", _discounted(critic, critic.lambda_policy)),
        *_lambda_definition(critic),
        row(_SURPRISE, "=", _REWARD, "+", product(*gamma, _NEXT_VALUE), "−", _VALUE),
        _token_reward(objective),
        row(symbol("L", "V"), "=", product(number(value.coef), call("mean", _value_loss(value)))),
        row(_RETURN, "=", _VALUE, "+", _discounted(critic, critic.lambda_critic)),
    ]


def _discounted(critic: knobs.Critic, lambda_: float | knobs.LengthAdaptive) -> Math:
    if isinstance(lambda_, knobs.LengthAdaptive):
        factors = [number(critic.gamma)] if critic.gamma != 1 else []
        decay = product(*factors, symbol("λ", "i"))
        decay = decay if not factors else bracketed(decay)
    else:
        decay = number(round(critic.gamma * lambda_, 12))
    last = f"k<{critic.n_step}" if critic.n_step else "k"
    if decay.text == "1":
        return summed(last, symbol("δ", "i,t+k"))
    return summed(last, product(power(decay, "k"), symbol("δ", "i,t+k")))


def _lambda_definition(critic: knobs.Critic) -> list[Math]:
    if not isinstance(critic.lambda_policy, knobs.LengthAdaptive):
        return []
    share = fraction(number(1), bracketed(product(number(critic.lambda_policy.alpha), LENGTH)))
    return [row(symbol("λ", "i"), "=", call("max", row(number(1), "−", share), number(0)))]


def _token_reward(objective: Objective) -> Math:
    last = row(_REWARD, "=", SUM, "at the last token,", "else", number(0))
    kl = objective.kl
    if not objective.kl_in_reward or isinstance(kl, knobs.NoKl):
        return last
    distance = limited(log_of("π_old", "π_ref"))
    return row(last, ",", "−", kl_weight(kl), distance, "at each token")


def _value_loss(value: knobs.Value) -> Math:
    plain = _squared(row(_VALUE, "−", _RETURN))
    half = fraction(number(1), number(2))
    if not value.clip:
        return product(half._replace(is_atom=True), plain)
    old = symbol("V", "old")
    near = call("clip", _VALUE, row(old, "−", number(value.clip)), row(old, "+", number(value.clip)))
    return product(half._replace(is_atom=True), call("max", plain, _squared(row(near, "−", _RETURN))))


def _squared(body: Math) -> Math:
    return power(bracketed(body), "2")


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
