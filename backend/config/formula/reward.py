"""Formulas of advantages that compare whole completions by their rewards."""

from typing import assert_never

from backend.config import knobs
from backend.config.formula.mathml import (
    Math,
    bracketed,
    call,
    fraction,
    number,
    power,
    product,
    root,
    row,
    summed,
    symbol,
)
from backend.config.formula.symbols import ADVANTAGE, LENGTH, ONE, REWARD

_GROUP = symbol("R", "group")
_STEP = symbol("R", "step")
_OTHERS = symbol("R", "group without i")
_GREEDY = symbol("R", "greedy")
_CENTRED = symbol("c", "i")


def compared(advantage: knobs.RewardAdvantage) -> Math:
    """A completion's reward against what it is compared with."""
    if _is_decoupled(advantage):
        batch = symbol("s", "step")
        value = fraction(row(symbol("s", "i"), "−", call("mean", batch)), _deviation(batch, advantage.scale))
    else:
        value = _scaled(advantage)
    return product(root(symbol("G")), value) if advantage.group_sum == "sqrt" else value


def _scaled(advantage: knobs.RewardAdvantage) -> Math:
    scale, centred = advantage.scale, _centred(advantage)
    match scale:
        case knobs.NoScale():
            return centred
        case knobs.GroupStd():
            return fraction(centred, _deviation(_GROUP, scale))
        case knobs.MeanReward(eps=eps):
            mean = call("mean", _GROUP)
            return fraction(centred, row(mean, "+", number(eps)) if eps else mean)
        case knobs.BatchStd(of="rewards"):
            return fraction(centred, _deviation(_STEP, scale))
        case knobs.BatchStd():
            return fraction(_CENTRED, _deviation(symbol("c", "step"), scale))
        case knobs.SeqWhiten() | knobs.TokenWhiten():
            over = symbol("c", "minibatch" if isinstance(scale, knobs.SeqWhiten) else "tokens")
            return fraction(row(_CENTRED, "−", call("mean", over)), _deviation(over, scale))
        case knobs.Sas():
            return call("smaller", symbol("S", "new"), symbol("S", "tot"))
        case _:
            assert_never(scale)


def _deviation(values: Math, scale: knobs.Scale) -> Math:
    if isinstance(scale, knobs.NoScale | knobs.MeanReward):
        return ONE
    spread = call("std" if scale.ddof == 1 else "std_population", values)
    eps = 0.0 if isinstance(scale, knobs.Sas) else scale.eps
    return row(spread, "+", number(eps)) if eps else spread


def reward_definitions(advantage: knobs.Advantage) -> list[Math]:
    """Return the symbols of `compared` that are no reward statistics themselves."""
    if isinstance(advantage, knobs.Critic):
        return []
    if isinstance(advantage, knobs.OptimalTokenBaseline):
        return _token_baseline()
    return [*_silence(advantage), *_centring(advantage), *_moving_average(advantage)]


def against_tokens() -> Math:
    """A completion's reward against the baseline of a token."""
    return row(REWARD, "−", symbol("b", "it"))


def _token_baseline() -> list[Math]:
    weight, drawn, all_tokens = symbol("W", "it"), symbol("p", "ik"), symbol("q", "ik")
    total = call("max", summed("i∈p", weight), number(1e-8))
    mean = fraction(summed("i∈p", product(weight, REWARD)), total)
    wandered = bracketed(row(ONE, "−", product(number(2), drawn), "+", all_tokens))
    return [
        row(symbol("b", "it"), "=", mean),
        row(symbol("b", "it"), "=", number(0), "where no other completion of the group is as long"),
        row(weight, "=", summed("k≤t", wandered)),
    ]


def _silence(advantage: knobs.RewardAdvantage) -> list[Math]:
    """State that nothing is learned if all rewards are equal, unless the division implies it."""
    if isinstance(advantage.scale, knobs.MeanReward):
        return [row(ADVANTAGE, "=", number(0), "where", call("mean", _GROUP), "≤", number(0))]
    equal = _equal_values(advantage)
    return [row(ADVANTAGE, "=", number(0), "where all of", equal, "are equal")] if equal else []


def _equal_values(advantage: knobs.RewardAdvantage) -> Math | None:
    scale = advantage.scale
    is_centred = isinstance(advantage, knobs.GroupMean | knobs.LeaveOneOut | knobs.BestOfGroup)
    match scale:
        case knobs.NoScale() | knobs.MeanReward() | knobs.Sas():
            return None
        case knobs.GroupStd(eps=eps):
            return None if _is_decoupled(advantage) or (eps and is_centred) else _GROUP
        case knobs.BatchStd(eps=eps, of=of):
            is_plain = eps and (is_centred or isinstance(advantage, knobs.BatchMean))
            return None if is_plain else symbol("c", "step") if of == "centred_rewards" else _STEP
        case knobs.SeqWhiten(eps=eps):
            return None if eps else symbol("c", "minibatch")
        case knobs.TokenWhiten(eps=eps):
            return None if eps else symbol("c", "tokens")
        case _:
            assert_never(scale)


def _centred(advantage: knobs.RewardAdvantage) -> Math:
    match advantage:
        case knobs.GroupMean():
            return row(REWARD, "−", call("mean", _GROUP))
        case knobs.LeaveOneOut():
            return row(REWARD, "−", call("mean", _OTHERS))
        case knobs.OptimalBaseline():
            tokens = fraction(ONE, bracketed(summed("i∈p", LENGTH)))
            return row(REWARD, "−", product(tokens, summed("i∈p", product(LENGTH, REWARD))))
        case knobs.GreedyBaseline():
            return row(REWARD, "−", _GREEDY)
        case knobs.BestOfGroup():
            return call("max", row(REWARD, "−", call("max", _OTHERS)), number(0))
        case knobs.BatchMean():
            return row(REWARD, "−", call("mean", _STEP))
        case knobs.MovingAverage():
            return row(REWARD, "−", symbol("b"))
        case knobs.NoBaseline():
            return REWARD
        case _:
            assert_never(advantage)


def _centring(advantage: knobs.RewardAdvantage) -> list[Math]:
    scale = advantage.scale
    if _is_decoupled(advantage):
        return _decoupled(scale)
    match scale:
        case knobs.SeqWhiten() | knobs.TokenWhiten() | knobs.BatchStd(of="centred_rewards"):
            return [row(_CENTRED, "=", _centred(advantage))]
        case knobs.Sas():
            return _smoothing(scale)
        case knobs.NoScale() | knobs.GroupStd() | knobs.BatchStd() | knobs.MeanReward():
            return []
        case _:
            assert_never(scale)


def _decoupled(scale: knobs.Scale) -> list[Math]:
    """GDPO: each reward term in units of its own deviation; one that is the same all over a group adds 0."""
    term_reward, group = symbol("R", "ij"), symbol("R", "group,j")
    normalised = fraction(row(term_reward, "−", call("mean", group)), _deviation(group, scale))
    return [row(symbol("s", "i"), "=", summed("j", product(symbol("w", "j"), normalised)))]


def _smoothing(scale: knobs.Sas) -> list[Math]:
    """SAS: this group's standardisation and that by all n earlier visits with it, blended both ways."""
    visits, new, total = symbol("n"), symbol("a", "new"), symbol("a", "tot")
    both, zero, mean = row(visits, "+", ONE), number(0), call("mean", _GROUP)
    later, variance = symbol("μ′"), symbol("v′")
    standard = fraction(row(REWARD, "−", mean), _deviation(_GROUP, scale))
    smoothed = fraction(row(REWARD, "−", later), root(variance))
    return [
        row(symbol("S", "new"), "=", fraction(row(product(visits, new), "+", total), both)),
        row(symbol("S", "tot"), "=", fraction(row(new, "+", product(visits, total)), both)),
        row(new, "=", standard, ",", zero, "where all of", _GROUP, "are equal"),
        row(total, "=", smoothed, ",", zero, "where", variance, "≤", number(1e-12)),
        *_visits(visits, later, variance, scale),
    ]


def _visits(visits: Math, later: Math, variance: Math, scale: knobs.Sas) -> list[Math]:
    """DCPO's recursion: mean and variance of a prompt's rewards with one more group of equal weight."""
    mean, earlier, spread = call("mean", _GROUP), symbol("μ"), symbol("v")
    both, zero = row(visits, "+", ONE), number(0)
    within, between = power(_deviation(_GROUP, scale), "2"), power(bracketed(row(mean, "−", earlier)), "2")
    moved = product(fraction(visits, both)._replace(is_atom=True), between)
    pooled = row(product(visits, spread), "+", within, "+", moved)
    return [
        row(later, "=", fraction(row(product(visits, earlier), "+", mean), both)),
        row(variance, "=", fraction(pooled, both)),
        row(visits, "=", earlier, "=", spread, "=", zero, "before a prompt's first visit"),
        row(visits, "←", both, ",", earlier, "←", later, ",", spread, "←", variance, "after each visit"),
    ]


def _is_decoupled(advantage: knobs.RewardAdvantage) -> bool:
    return isinstance(advantage, knobs.GroupMean) and advantage.multi_reward == "gdpo"


def _moving_average(advantage: knobs.RewardAdvantage) -> list[Math]:
    if not isinstance(advantage, knobs.MovingAverage):
        return []
    decayed = product(number(advantage.decay), symbol("b"))
    added = product(number(round(1 - advantage.decay, 12)), call("mean", _STEP))
    return [row(symbol("b"), "←", decayed, "+", added, "after each step,", "from", number(0))]


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
