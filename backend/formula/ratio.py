"""The ratio of new to old probabilities, and its correction for a sampler that differs."""

from typing import assert_never

from backend.config import knobs
from backend.config.objective import Objective
from backend.formula.mathml import Math, bracketed, call, fraction, number, product, row, summed, symbol
from backend.formula.symbols import LENGTH, ONE, POLICY


def ratio_definitions(objective: Objective) -> list[Math]:
    ratio = objective.ratio
    if isinstance(ratio, knobs.NoRatio):
        return []
    token = fraction(POLICY, _old(ratio.old))
    if objective.router.type != "none":
        token = product(symbol("g", "it"), bracketed(token))
    if isinstance(objective.surrogate, knobs.GeoToken):
        return _geo_token(objective.surrogate, token)
    mean = call(
        "exp", row(fraction(ONE, LENGTH), summed("t", row("log", bracketed(token))._replace(is_atom=True)))
    )
    match ratio:
        case knobs.TokenRatio():
            return [row(symbol("r", "it"), "=", token)]
        case knobs.SequenceGeometricRatio():
            return [row(symbol("r", "i"), "=", mean)]
        case knobs.SequenceGeometricTokenRatio():
            own = fraction(POLICY, row("sg", bracketed(POLICY, "[]"), gap="")._replace(is_atom=True))
            constant = row("sg", bracketed(mean, "[]"), gap="")._replace(is_atom=True)
            return [row(symbol("r", "it"), "=", product(constant, own))]
        case knobs.SequenceProductRatio():
            return [row(symbol("r", "i"), "=", summed("t", token, sign="∏"))]
        case _:
            assert_never(ratio)


def _old(source: str) -> Math:
    if source == "current":
        return row("sg", bracketed(POLICY, "[]"), gap="")._replace(is_atom=True)
    return call("π_sampler" if source == "sampler" else "π_old", symbol("o", "it"))


def _geo_token(rule: knobs.GeoToken, token: Math) -> list[Math]:
    step = symbol("d", "it")
    clipped = symbol("d′", "it")
    return [
        row(symbol("r", "i"), "=", call("exp", row(fraction(ONE, LENGTH), summed("t", clipped)))),
        row(step, "=", "log", bracketed(token)),
        row(clipped, "=", call("min", step, number(rule.eps_high)), "where", "A", ">", number(0)),
        row(clipped, "=", call("max", step, number(-rule.eps_low)), "where", "A", "<", number(0)),
    ]


def correction_definitions(correction: knobs.Correction) -> list[Math]:
    token = symbol("ρ", "it")
    definition = row(
        token, "=", fraction(call("π_old", symbol("o", "it")), call("π_sampler", symbol("o", "it")))
    )
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
        return row(symbol("ρ", "i"), "=", summed("t", token, sign="∏"))
    mean = row(fraction(ONE, LENGTH), summed("t", row("log", token)._replace(is_atom=True)))
    return row(symbol("ρ", "i"), "=", call("exp", mean))
