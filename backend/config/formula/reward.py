"""Formulas of advantages that compare whole completions by their rewards."""

from typing import assert_never

from backend.config import knobs
from backend.config.formula.notation import factor, fraction, number

_MEAN = "mean(R_group)"


def reward_difference(advantage: knobs.RewardAdvantage) -> str:
    """Return the formula of a completion's advantage from its reward."""
    if _is_decoupled(advantage):
        value = fraction("sᵢ − mean(s_step)", _deviation("s_step", advantage.scale))
    else:
        value = _scaled_difference(advantage)
    return f"√G {factor(value)}" if advantage.group_sum == "sqrt" else value


def _scaled_difference(advantage: knobs.RewardAdvantage) -> str:
    scale, centred_reward = advantage.scale, _centred_reward(advantage)
    match scale:
        case knobs.NoScale():
            return centred_reward
        case knobs.GroupStd():
            return fraction(centred_reward, _deviation("R_group", scale))
        case knobs.MeanReward(eps=eps):
            return fraction(centred_reward, f"{_MEAN} + {number(eps)}" if eps else _MEAN)
        case knobs.BatchStd(of="rewards"):
            return fraction(centred_reward, _deviation("R_step", scale))
        case knobs.BatchStd():
            return fraction("cᵢ", _deviation("c_step", scale))
        case knobs.SeqWhiten() | knobs.TokenWhiten():
            pool = "c_minibatch" if isinstance(scale, knobs.SeqWhiten) else "c_tokens"
            return fraction(f"cᵢ − mean({pool})", _deviation(pool, scale))
        case knobs.Sas():
            return "smaller(S_new, S_tot)"
        case _:
            assert_never(scale)


def _deviation(values: str, scale: knobs.Scale) -> str:
    if isinstance(scale, knobs.NoScale | knobs.MeanReward):
        return "1"
    spread = f"{'std' if scale.ddof == 1 else 'std_population'}({values})"
    eps = 0.0 if isinstance(scale, knobs.Sas) else scale.eps
    return f"{spread} + {number(eps)}" if eps else spread


def reward_definitions(advantage: knobs.Advantage) -> list[str]:
    """Return the definitions of the symbols in `reward_difference` other than reward statistics."""
    if isinstance(advantage, knobs.Critic):
        return []
    if isinstance(advantage, knobs.OptimalTokenBaseline):
        return _token_baseline()
    return [*_silence(advantage), *_baseline_definition(advantage), *_moving_average(advantage)]


def against_tokens() -> str:
    """Return the reward of a completion minus the baseline of a token."""
    return "Rᵢ − bᵢₜ"


def _token_baseline() -> list[str]:
    return [
        f"bᵢₜ = (∑_i∈p Wᵢₜ Rᵢ) / max(∑_i∈p Wᵢₜ, {number(1e-8)})",
        "bᵢₜ = 0 where no other completion of the group is as long",
        "Wᵢₜ = ∑_k≤t (1 − 2 p_ik + q_ik)",
    ]


def _silence(advantage: knobs.RewardAdvantage) -> list[str]:
    """Return the rule that advantages are 0 if all rewards are equal, unless the formula implies it."""
    if isinstance(advantage.scale, knobs.MeanReward):
        return [f"Aᵢ = 0 where {_MEAN} ≤ 0"]
    equal_values = _equal_values(advantage)
    return [f"Aᵢ = 0 where all of {equal_values} are equal"] if equal_values else []


def _equal_values(advantage: knobs.RewardAdvantage) -> str | None:
    scale = advantage.scale
    is_centred = isinstance(advantage, knobs.GroupMean | knobs.LeaveOneOut | knobs.BestOfGroup)
    match scale:
        case knobs.NoScale() | knobs.MeanReward() | knobs.Sas():
            return None
        case knobs.GroupStd(eps=eps):
            return None if _is_decoupled(advantage) or (eps and is_centred) else "R_group"
        case knobs.BatchStd(eps=eps, of=of):
            is_plain = eps and (is_centred or isinstance(advantage, knobs.BatchMean))
            return None if is_plain else "c_step" if of == "centred_rewards" else "R_step"
        case knobs.SeqWhiten(eps=eps):
            return None if eps else "c_minibatch"
        case knobs.TokenWhiten(eps=eps):
            return None if eps else "c_tokens"
        case _:
            assert_never(scale)


def _centred_reward(advantage: knobs.RewardAdvantage) -> str:
    match advantage:
        case knobs.GroupMean():
            return f"Rᵢ − {_MEAN}"
        case knobs.LeaveOneOut():
            return "Rᵢ − mean(R_group without i)"
        case knobs.OptimalBaseline():
            return "Rᵢ − (1/(∑_i∈p |oᵢ|)) ∑_i∈p |oᵢ| Rᵢ"
        case knobs.GreedyBaseline():
            return "Rᵢ − R_greedy"
        case knobs.BestOfGroup():
            return "max(Rᵢ − max(R_group without i), 0)"
        case knobs.BatchMean():
            return "Rᵢ − mean(R_step)"
        case knobs.MovingAverage():
            return "Rᵢ − b"
        case knobs.NoBaseline():
            return "Rᵢ"
        case _:
            assert_never(advantage)


def _baseline_definition(advantage: knobs.RewardAdvantage) -> list[str]:
    scale = advantage.scale
    if _is_decoupled(advantage):
        return _gdpo_definition(scale)
    match scale:
        case knobs.SeqWhiten() | knobs.TokenWhiten() | knobs.BatchStd(of="centred_rewards"):
            return [f"cᵢ = {_centred_reward(advantage)}"]
        case knobs.Sas():
            return _sas_definition(scale)
        case knobs.NoScale() | knobs.GroupStd() | knobs.BatchStd() | knobs.MeanReward():
            return []
        case _:
            assert_never(scale)


def _gdpo_definition(scale: knobs.Scale) -> list[str]:
    """Return GDPO's sum of reward terms, each normalised by its deviation in the group."""
    normalised_reward = fraction("Rᵢⱼ − mean(R_group,j)", _deviation("R_group,j", scale))
    return [f"sᵢ = ∑ⱼ wⱼ ({normalised_reward})"]


def _sas_definition(scale: knobs.Sas) -> list[str]:
    """Return the definitions of SAS, which blends standardisation by the group and by all visits in two ways.

    The mean and variance over the visits follow DCPO's recursion, in which each group has equal weight.
    """
    deviation = _deviation("R_group", scale)
    pooled = f"n v + {deviation}² + n / (n + 1) ({_MEAN} − μ)²"
    return [
        "S_new = (n a_new + a_tot) / (n + 1)",
        "S_tot = (a_new + n a_tot) / (n + 1)",
        f"a_new = (Rᵢ − {_MEAN}) / {deviation}, 0 where all of R_group are equal",
        f"a_tot = (Rᵢ − μ′) / √v′, 0 where v′ ≤ {number(1e-12)}",
        f"μ′ = (n μ + {_MEAN}) / (n + 1)",
        f"v′ = ({pooled}) / (n + 1)",
        "n = μ = v = 0 before a prompt's first visit",
        "n ← n + 1, μ ← μ′, v ← v′ after each visit",
    ]


def _is_decoupled(advantage: knobs.RewardAdvantage) -> bool:
    return isinstance(advantage, knobs.GroupMean) and advantage.multi_reward == "gdpo"


def _moving_average(advantage: knobs.RewardAdvantage) -> list[str]:
    if not isinstance(advantage, knobs.MovingAverage):
        return []
    decay, complement = number(advantage.decay), number(round(1 - advantage.decay, 12))
    return [f"b ← {decay} b + {complement} mean(R_step) after each step, from 0"]


MEANINGS = {
    "smaller": "the one of smaller absolute value, the first where they are equal",
    "cᵢ": "reward of completion i against its baseline",
    "c_step": "the cᵢ of all completions that train in the step",
    "c_minibatch": "the cᵢ of the completions of the optimizer step",
    "c_tokens": "the cᵢ of the step, each as often as its completion has tokens",
    "b": "moving average of the steps' mean rewards",
    "∑_k≤t": "sum over the tokens up to t",
    "bᵢₜ": "baseline of a token: the same for all completions of the group that have a t-th token",
    "Wᵢₜ": "how far the gradient has wandered up to a token",
    "p_ik": "probability of the k-th token under the weights that opened the step",
    "q_ik": "sum of the squared probabilities of all tokens that could stand there",
    "R_greedy": "reward of the greedy completion of the prompt, which does not train",
    "sᵢ": "weighted sum of the reward terms, each normalised in its group",
    "s_step": "the sᵢ of all completions that train in the step",
    "S_new": "blend that leans to this visit of the prompt, the more the more visits there were",
    "S_tot": "blend that leans to all visits of the prompt, the more the more visits there were",
    "a_new": "reward standardised by its group",
    "a_tot": "reward standardised by all visits of its prompt, this one included",
    "n": "earlier visits of the prompt: groups of it that trained before",
    "μ": "mean reward over the earlier visits",
    "μ′": "mean reward with this visit",
    "v": "variance of the rewards over the earlier visits",
    "v′": "variance of the rewards with this visit",
}
"""Meanings of the symbols that this module writes."""
