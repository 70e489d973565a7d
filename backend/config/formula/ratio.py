"""The ratio of new to old probabilities, and its correction for a sampler that differs."""

from typing import assert_never

from backend.config import knobs
from backend.config.formula.mathml import (
    Math,
    bracketed,
    call,
    constant,
    fraction,
    number,
    product,
    row,
    summed,
    symbol,
)
from backend.config.formula.symbols import LENGTH, ONE, POLICY, TOKEN, advantage_of, limited_ratio
from backend.config.objective import Objective

_OWN = symbol("q", "it")


def ratio_definitions(objective: Objective) -> list[Math]:
    """Definitions of the ratio r; empty without a ratio."""
    ratio = objective.ratio
    if isinstance(ratio, knobs.NoRatio):
        return []
    token = _token_ratio(objective, ratio.old)
    own_ratio = row(_OWN, "=", token)
    if isinstance(objective.surrogate, knobs.GeoToken):
        return [*_geo_token(objective, objective.surrogate), own_ratio]
    mean = _geometric_mean(row("log", _OWN)._replace(is_atom=True))
    match ratio:
        case knobs.TokenRatio():
            return [row(symbol("r", "it"), "=", token)]
        case knobs.SequenceGeometricRatio():
            return [row(symbol("r", "i"), "=", mean), own_ratio]
        case knobs.SequenceGeometricTokenRatio():
            gradient = fraction(_OWN, constant(_OWN))
            return [row(symbol("r", "it"), "=", product(constant(mean), gradient)), own_ratio]
        case knobs.SequenceProductRatio():
            return [row(symbol("r", "i"), "=", limited_ratio(summed("t", _OWN, sign="∏"))), own_ratio]
        case _:
            assert_never(ratio)


def _token_ratio(objective: Objective, old: str) -> Math:
    """A token's ratio within its limits, and what a router's move leaves of it."""
    match old:
        case "current":
            ratio = fraction(POLICY, constant(POLICY))
        case "sampler":
            ratio = limited_ratio(fraction(POLICY, call("π_sampler", TOKEN)))
        case _:
            ratio = limited_ratio(fraction(POLICY, call("π_old", TOKEN)))
    return ratio if objective.router.type == "none" else product(symbol("g", "it"), ratio)


def _geometric_mean(log_ratio: Math) -> Math:
    return call("exp", row(fraction(ONE, LENGTH), summed("t", log_ratio)))


def _geo_token(objective: Objective, rule: knobs.GeoToken) -> list[Math]:
    step, clipped, advantage = symbol("d", "it"), symbol("d′", "it"), advantage_of(objective)
    high, low = call("min", step, number(rule.eps_high)), call("max", step, number(-rule.eps_low))
    return [
        row(symbol("r", "i"), "=", _geometric_mean(clipped)),
        row(clipped, "=", high, "where", advantage, ">", number(0), ",", "else", low),
        row(step, "=", "log", _OWN),
    ]


def correction_definitions(correction: knobs.Correction) -> list[Math]:
    token = symbol("ρ", "it")
    mismatch = fraction(call("π_old", TOKEN), call("π_sampler", TOKEN))
    definition = row(token, "=", limited_ratio(mismatch))
    sequence = symbol("ρ", "i")
    weight, sequence_weight = symbol("w", "it"), symbol("w", "i")
    match correction:
        case knobs.NoCorrection():
            return []
        case knobs.TokenTis():
            return [row(weight, "=", call("min", token, number(correction.cap))), definition]
        case knobs.TokenMask():
            return [_banded(weight, token, token, correction.low, correction.high), definition]
        case knobs.SequenceTis():
            value = call("min", sequence, number(correction.cap))
            return [row(sequence_weight, "=", value), _sequence_rho(correction.level), definition]
        case knobs.SequenceMask():
            banded = _banded(sequence_weight, sequence, sequence, correction.low, correction.high)
            return [banded, _sequence_rho(correction.level), definition]
        case knobs.SequenceK3():
            distance = symbol("κ", "i")
            weight_if_kept = row(
                sequence_weight, "=", ONE, "where", distance, "≤", number(correction.threshold)
            )
            k3 = row(token, "−", ONE, "−", row("log", token)._replace(is_atom=True))
            mean = row(fraction(ONE, LENGTH), summed("t", bracketed(k3)))
            return [row(weight_if_kept, ",", "else", number(0)), row(distance, "=", mean), definition]
        case knobs.GeoFilter():
            banded = _banded(weight, token, sequence, correction.low, correction.high)
            return [banded, _sequence_rho("geo"), definition]
        case _:
            assert_never(correction)


def _banded(weight: Math, value: Math, judged: Math, low: float, high: float) -> Math:
    return row(
        weight, "=", value, "where", number(low), "≤", judged, "≤", number(high), ",", "else", number(0)
    )


def _sequence_rho(level: str) -> Math:
    token = symbol("ρ", "it")
    if level == "product":
        return row(symbol("ρ", "i"), "=", limited_ratio(summed("t", token, sign="∏")))
    return row(symbol("ρ", "i"), "=", _geometric_mean(row("log", token)._replace(is_atom=True)))


MEANINGS = {
    "rᵢₜ": "ratio of new to old probability of a token",
    "rᵢ": "ratio of new to old probability of a completion, the same for all its tokens",
    "qᵢₜ": "ratio of new to old probability of a token",
    "dᵢₜ": "logarithm of the ratio; nats",
    "d′ᵢₜ": "the same, limited in the direction in which the advantage moves it; nats",
    "wᵢₜ": "weight of a token against the mismatch of sampler and trainer, a constant",
    "wᵢ": "weight of a completion against the mismatch of sampler and trainer, a constant",
    "ρᵢₜ": "trainer's old probability of a token over the sampler's",
    "ρᵢ": "the same of a whole completion",
    "κᵢ": "distance of trainer and sampler: mean over a completion's tokens of k3; nats per token",
}
"""Meanings of the symbols that this module writes."""
