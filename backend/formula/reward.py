"""How formulas write an advantage that compares whole completions by their rewards."""

from typing import assert_never

from backend.config import knobs
from backend.formula.mathml import Math, call, fraction, number, product, root, row, summed, symbol
from backend.formula.symbols import ONE, REWARD


def compared(advantage: knobs.RewardAdvantage) -> Math:
    """A completion's reward against what it is compared with."""
    if _is_decoupled(advantage):
        batch = symbol("s", "step")
        value = fraction(row(symbol("s", "i"), "−", call("mean", batch)), _deviation(batch, advantage.scale))
    else:
        value = _scaled(_centred(advantage), advantage.scale)
    return product(root(symbol("G")), value) if advantage.group_sum == "sqrt" else value


def _scaled(centred: Math, scale: knobs.Scale) -> Math:
    match scale:
        case knobs.NoScale():
            return centred
        case knobs.GroupStd():
            return fraction(centred, _deviation(symbol("R", "group"), scale))
        case knobs.BatchStd():
            return fraction(centred, _deviation(symbol("R", "step"), scale))
        case knobs.SeqWhiten() | knobs.TokenWhiten():
            over = symbol("c", "minibatch" if isinstance(scale, knobs.SeqWhiten) else "tokens")
            return fraction(row(symbol("c", "i"), "−", call("mean", over)), _deviation(over, scale))
        case knobs.Sas():
            return call("smaller", symbol("S", "new"), symbol("S", "tot"))
        case _:
            assert_never(scale)


def _deviation(values: Math, scale: knobs.Scale) -> Math:
    if isinstance(scale, knobs.NoScale):
        return ONE
    if isinstance(scale, knobs.Sas):
        return call("std" if scale.ddof == 1 else "std_population", values)
    name = "std" if scale.ddof == 1 else "std_population"
    return row(call(name, values), "+", number(scale.eps))


def reward_definitions(advantage: knobs.Advantage) -> list[Math]:
    """The symbols of `compared` that are no reward statistics themselves."""
    if isinstance(advantage, knobs.Critic):
        return []
    return [*_centring(advantage), *_moving_average(advantage)]


def _centred(advantage: knobs.RewardAdvantage) -> Math:
    match advantage:
        case knobs.GroupMean():
            return row(REWARD, "−", call("mean", symbol("R", "group")))
        case knobs.LeaveOneOut():
            return row(REWARD, "−", call("mean", symbol("R", "group without i")))
        case knobs.BatchMean():
            return row(REWARD, "−", call("mean", symbol("R", "step")))
        case knobs.MovingAverage():
            return row(REWARD, "−", symbol("b"))
        case knobs.NoBaseline():
            return REWARD
        case _:
            assert_never(advantage)


def _centring(advantage: knobs.RewardAdvantage) -> list[Math]:
    if _is_decoupled(advantage):
        own, group = symbol("R", "ik"), symbol("R", "group,k")
        normalised = fraction(row(own, "−", call("mean", group)), _deviation(group, advantage.scale))
        return [row(symbol("s", "i"), "=", summed("k", product(symbol("w", "k"), normalised)))]
    if isinstance(advantage.scale, knobs.SeqWhiten | knobs.TokenWhiten):
        return [row(symbol("c", "i"), "=", _centred(advantage))]
    if isinstance(advantage.scale, knobs.Sas):
        return _smoothing(advantage.scale)
    return []


def _smoothing(scale: knobs.Sas) -> list[Math]:
    """SAS: this group's standardisation and that of all n earlier visits with it, blended both ways."""
    visits, new, total = symbol("n"), symbol("a", "new"), symbol("a", "tot")
    both = row(visits, "+", ONE)
    group, every = symbol("R", "group"), symbol("R", "visits")
    return [
        row(symbol("S", "new"), "=", fraction(row(visits, new, "+", total), both)),
        row(symbol("S", "tot"), "=", fraction(row(new, "+", visits, total), both)),
        row(new, "=", fraction(row(REWARD, "−", call("mean", group)), _deviation(group, scale))),
        row(total, "=", fraction(row(REWARD, "−", call("mean", every)), _deviation(every, scale))),
    ]


def _is_decoupled(advantage: knobs.RewardAdvantage) -> bool:
    return isinstance(advantage, knobs.GroupMean) and advantage.multi_reward == "gdpo"


def _moving_average(advantage: knobs.RewardAdvantage) -> list[Math]:
    if not isinstance(advantage, knobs.MovingAverage):
        return []
    kept = product(number(advantage.decay), symbol("b"))
    added = product(number(round(1 - advantage.decay, 12)), call("mean", symbol("R", "step")))
    return [row(symbol("b"), "←", kept, "+", added)]
