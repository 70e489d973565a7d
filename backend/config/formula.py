"""The loss of an objective written out with the numbers in use, as text and as MathML."""

from collections.abc import Mapping
from typing import TypedDict, assert_never

from backend.config import knobs
from backend.config.formula_critic import critic_definitions, token_advantage
from backend.config.formula_reward import compared, reward_definitions
from backend.config.formula_tokens import token_weighted, trained, trained_definition
from backend.config.formula_weights import (
    entropy_weight,
    entropy_weight_definition,
    kl_weight,
    kl_weight_definition,
    off_policy_definition,
    reference_definition,
)
from backend.config.mathml import (
    Math,
    bracketed,
    call,
    fraction,
    lines,
    number,
    product,
    root,
    row,
    summed,
    symbol,
)
from backend.config.objective import Objective
from backend.config.run import RunConfig


class Formula(TypedDict):
    """A formula in both forms."""

    text: str
    mathml: str


_ADVANTAGE = symbol("A", "i")
_REWARD = symbol("R", "i")
_LENGTH = bracketed(symbol("o", "i"), "||")
_POLICY = call("π", symbol("o", "it"))
_ONE = number(1)
_PER_COMPLETION = {"seq_geo", "seq_product"}


def formula(config: RunConfig) -> Formula:
    """What the run minimises, and under it the definitions of its symbols.

    B completions of P prompts in one optimizer batch, B_step in the whole step; oᵢₜ is token t of completion
    i, |oᵢ| its length; sg[.] has no gradient.
    Example: the text of the defaults begins with "L = − 1/B ∑ᵢ 1/|oᵢ| ∑ₜ min(rᵢₜ Aᵢ, ".
    """
    objective = _with_constant(config)
    definitions = [*_definitions(objective), *_data_definitions(config)]
    rows = [_loss(objective, config), _advantage(objective), *_ratio(objective), *definitions]
    block = lines(rows)
    return {"text": block.text, "mathml": block.mathml}


def _with_constant(config: RunConfig) -> Objective:
    """The objective with the run's length cap where its aggregation divides by that."""
    objective = config.objective
    rule = objective.aggregation
    if not isinstance(rule, knobs.SeqMeanTokenSumNorm) or rule.l_max != "max_new_tokens":
        return objective
    number_of_tokens = knobs.SeqMeanTokenSumNorm(l_max=config.sampling.max_new_tokens)
    return objective.model_copy(update={"aggregation": number_of_tokens})


def _loss(objective: Objective, config: RunConfig) -> Math:
    terms: list[Math | str] = ["L", "=", "−", _policy_term(objective)]
    kl = objective.kl
    if not isinstance(kl, knobs.NoKl) and not objective.kl_in_reward:
        rule = knobs.SeqMeanTokenSum() if kl.aggregation == "seq_sum" else objective.aggregation
        estimate = trained(symbol("k", "it"), objective.token_weight)
        if isinstance(kl.coef, Mapping):
            terms += ["+", _aggregated(product(kl_weight(kl), estimate), rule, per_completion=False)]
        else:
            terms += ["+", kl_weight(kl), "·", _aggregated(estimate, rule, per_completion=False)]
    if not isinstance(objective.entropy, knobs.NoEntropyBonus):
        entropy = trained(symbol("H", "it"), objective.token_weight)
        reduced = _aggregated(entropy, objective.aggregation, per_completion=False)
        terms += ["−", entropy_weight(objective.entropy), "·", reduced]
    if isinstance(objective.nll, knobs.PositiveNll):
        share = fraction(_ONE, bracketed(summed("i correct", _LENGTH)))
        surprise = trained(row("log", _POLICY)._replace(is_atom=True), objective.token_weight)
        whole = summed("i correct", summed("t", surprise))
        terms += ["−", number(objective.nll.coef), "·", share, whole]
    if config.filters.upweight:
        return row("L", "=", product(symbol("u"), row(*terms[2:])))
    return row(*terms)


def _data_definitions(config: RunConfig) -> list[Math]:
    """What sampling, filters and length do to the loss."""
    sampling, rows = config.sampling, []
    policy, completion = symbol("π"), symbol("o", "i")
    is_plain = config.objective.ratio.logprob_temperature == "one"
    if is_plain or sampling.temperature != 1:
        rows.append(row(policy, "at temperature", _ONE if is_plain else number(sampling.temperature)))
    if sampling.keep_mask and (sampling.top_p < 1 or sampling.top_k > 0):
        cuts = [*(["top-p"] if sampling.top_p < 1 else []), *(["top-k"] if sampling.top_k > 0 else [])]
        rows.append(row(policy, "over the ids that " + " and ".join(cuts) + " left, also in π_old and π_ref"))
    if config.filters.upweight:
        groups = fraction(symbol("groups", "sampled"), symbol("groups", "kept"))
        rows.append(row(symbol("u"), "=", groups))
    if config.length.truncated.type == "mask":
        cut = row("where", completion, "was cut off at", number(sampling.max_new_tokens), "tokens")
        rows.append(row(_LENGTH, "=", number(0), "and every term of it", number(0), cut))
    return rows


def _policy_term(objective: Objective) -> Math:
    core = _surrogate(objective)
    if objective.correction.type != "none":
        core = product(symbol("w", "i" if objective.correction.type.startswith("seq") else "it"), core)
    if objective.off_policy_mask.type != "none":
        core = product(symbol("M", _whose(objective)), core)
    is_shared = objective.correction.type in {"none", "seq_tis", "seq_mask"}
    whole = objective.ratio.type in _PER_COMPLETION and is_shared
    return _aggregated(trained(core, objective.token_weight), objective.aggregation, per_completion=whole)


def _aggregated(core: Math, aggregation: knobs.Aggregation, *, per_completion: bool) -> Math:
    """The reduction around a term; one that all tokens of a completion share needs no sum over them."""
    tokens = product(_LENGTH, core) if per_completion else summed("t", core)
    completions = symbol("B")
    match aggregation:
        case knobs.SeqMeanTokenMean():
            inner = core if per_completion else row(fraction(_ONE, _LENGTH), tokens)
            return row(fraction(_ONE, completions), summed("i", inner._replace(is_atom=True)))
        case knobs.TokenMean():
            return row(fraction(_ONE, bracketed(summed("i", _LENGTH))), summed("i", tokens))
        case knobs.PromptMean():
            share = fraction(_ONE, bracketed(summed("i∈p", _LENGTH)))
            inner = row(share, summed("i∈p", tokens))._replace(is_atom=True)
            return row(fraction(_ONE, symbol("P")), summed("p", inner))
        case knobs.SeqMeanTokenSum():
            return row(fraction(_ONE, completions), summed("i", tokens))
        case knobs.SeqMeanTokenSumNorm(l_max=l_max):
            constant = symbol("L", "max") if l_max == "max_new_tokens" else number(l_max)
            return row(fraction(_ONE, bracketed(product(completions, constant))), summed("i", tokens))
        case _:
            assert_never(aggregation)


def _surrogate(objective: Objective) -> Math:
    advantage = symbol("A", "it") if _per_token(objective) else _ADVANTAGE
    ratio = symbol("r", "i" if objective.ratio.type in _PER_COMPLETION else "it")
    plain = product(ratio, advantage)
    log_likelihood = product(advantage, row("log", _POLICY))
    rule = objective.surrogate
    match rule:
        case knobs.NoSurrogate():
            return log_likelihood if objective.ratio.type == "none" else plain
        case knobs.PpoClip():
            low, high = number(1 - rule.eps_low), number(1 + rule.eps_high)
            return _pessimistic(plain, call("clip", ratio, low, high), advantage, rule.dual_clip)
        case knobs.BookSigned():
            return product(call("min", ratio, number(1 + rule.eps_high)), advantage)
        case knobs.WeightCap():
            weight = bracketed(call("min", ratio, number(rule.cap)), "[]")
            capped = row("sg", weight, gap="")._replace(is_atom=True)
            mask = [symbol("m", "it")] if rule.token_mask.type == "ppo" else []
            return product(*mask, capped, *(advantage, row("log", _POLICY)._replace(is_atom=True)))
        case knobs.GeoToken():
            return plain
        case knobs.Sapo():
            gate = call("σ", product(symbol("τ"), row(ratio, "−", _ONE)))
            return product(fraction(number(4), symbol("τ"))._replace(is_atom=True), gate, advantage)
        case knobs.DynamicClip():
            clipped = call("clip", ratio, symbol("l", "it"), symbol("h", "it"))
            return _pessimistic(plain, clipped, advantage, rule.dual_clip)
        case _:
            assert_never(rule)


def _per_token(objective: Objective) -> bool:
    """Whether the tokens of a completion have advantages of their own."""
    return objective.critic is not None or objective.token_weight.type in {"ar", "top_entropy"}


def _whose(objective: Objective) -> str:
    return "it" if _per_token(objective) else "i"


def _pessimistic(plain: Math, clipped: Math, advantage: Math, dual_clip: float) -> Math:
    smaller = call("min", plain, product(clipped, advantage))
    if not dual_clip:
        return smaller
    return call("max", smaller, call("min", product(number(dual_clip), advantage), number(0)))


def _advantage(objective: Objective) -> Math:
    advantage = objective.advantage
    value = token_advantage(advantage) if isinstance(advantage, knobs.Critic) else compared(advantage)
    name = symbol("A", "it") if _per_token(objective) else _ADVANTAGE
    return row(name, "=", token_weighted(value, objective.token_weight))


def _ratio(objective: Objective) -> list[Math]:
    ratio = objective.ratio
    if isinstance(ratio, knobs.NoRatio):
        return []
    token = fraction(_POLICY, _old(ratio.old))
    if objective.router.type != "none":
        token = product(symbol("g", "it"), bracketed(token))
    if isinstance(objective.surrogate, knobs.GeoToken):
        return _geo_token(objective.surrogate, token)
    mean = call(
        "exp", row(fraction(_ONE, _LENGTH), summed("t", row("log", bracketed(token))._replace(is_atom=True)))
    )
    match ratio:
        case knobs.TokenRatio():
            return [row(symbol("r", "it"), "=", token)]
        case knobs.SequenceGeometricRatio():
            return [row(symbol("r", "i"), "=", mean)]
        case knobs.SequenceGeometricTokenRatio():
            own = fraction(_POLICY, row("sg", bracketed(_POLICY, "[]"), gap="")._replace(is_atom=True))
            constant = row("sg", bracketed(mean, "[]"), gap="")._replace(is_atom=True)
            return [row(symbol("r", "it"), "=", product(constant, own))]
        case knobs.SequenceProductRatio():
            return [row(symbol("r", "i"), "=", summed("t", token, sign="∏"))]
        case _:
            assert_never(ratio)


def _old(source: str) -> Math:
    if source == "current":
        return row("sg", bracketed(_POLICY, "[]"), gap="")._replace(is_atom=True)
    return call("π_sampler" if source == "sampler" else "π_old", symbol("o", "it"))


def _geo_token(rule: knobs.GeoToken, token: Math) -> list[Math]:
    step = symbol("d", "it")
    clipped = symbol("d′", "it")
    return [
        row(symbol("r", "i"), "=", call("exp", row(fraction(_ONE, _LENGTH), summed("t", clipped)))),
        row(step, "=", "log", bracketed(token)),
        row(clipped, "=", call("min", step, number(rule.eps_high)), "where", "A", ">", number(0)),
        row(clipped, "=", call("max", step, number(-rule.eps_low)), "where", "A", "<", number(0)),
    ]


def _definitions(objective: Objective) -> list[Math]:
    return [
        *reward_definitions(objective.advantage),
        *_reward_definition(objective),
        *trained_definition(objective.token_weight),
        *_surrogate_definition(objective.surrogate),
        *_correction_definition(objective.correction),
        *off_policy_definition(objective, subscript=_whose(objective)),
        *_kl_definition(objective),
        *reference_definition(objective),
        *kl_weight_definition(objective.kl),
        *entropy_weight_definition(objective.entropy),
    ]


def _reward_definition(objective: Objective) -> list[Math]:
    if objective.critic is not None:
        return critic_definitions(objective, objective.critic)
    if not objective.kl_in_reward or isinstance(objective.kl, knobs.NoKl):
        return []
    token = symbol("o", "it")
    distance = row("log", bracketed(fraction(call("π_old", token), call("π_ref", token))))
    penalty = summed("t", distance._replace(is_atom=True))
    return [row(_REWARD, "=", symbol("reward", "i"), "−", kl_weight(objective.kl), penalty)]


def _surrogate_definition(rule: knobs.Surrogate) -> list[Math]:
    ratio, advantage = symbol("r", "it"), symbol("A")
    match rule:
        case knobs.Sapo():
            positive = row(symbol("τ"), "=", number(rule.tau_pos), "where", advantage, ">", number(0))
            return [row(positive, ",", "else", number(rule.tau_neg))]
        case knobs.DynamicClip():
            q = call("π_old", symbol("o", "it"))
            half = number(0.5)
            lower = root(call("max", row(_ONE, "−", fraction(number(4 * rule.eps_low), q)), number(0)))
            upper = root(row(_ONE, "+", fraction(number(4 * rule.eps_high), q)))
            return [
                row(symbol("l", "it"), "=", half, "+", half, lower),
                row(symbol("h", "it"), "=", call("min", row(half, "+", half, upper), number(rule.r_max))),
            ]
        case knobs.WeightCap(token_mask=knobs.PpoTokenMask() as mask):
            above = row(advantage, ">", number(0), "and", ratio, ">", number(1 + mask.eps_high))
            below = row(advantage, "<", number(0), "and", ratio, "<", number(1 - mask.eps_low))
            return [row(symbol("m", "it"), "=", number(0), "where", above, "or", below, ",", "else", _ONE)]
        case _:
            return []


def _correction_definition(correction: knobs.Correction) -> list[Math]:
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
    mean = row(fraction(_ONE, _LENGTH), summed("t", row("log", token)._replace(is_atom=True)))
    return row(symbol("ρ", "i"), "=", call("exp", mean))


def _kl_definition(objective: Objective) -> list[Math]:
    kl = objective.kl
    if isinstance(kl, knobs.NoKl) or objective.kl_in_reward:
        return []
    x = symbol("x", "it")
    k3 = row(call("exp", row("−", x, gap="")), "+", x, "−", _ONE)
    ratio = symbol("r", "i" if objective.ratio.type in _PER_COMPLETION else "it")
    estimates = {
        "k1": x,
        "k2": row(fraction(_ONE, number(2)), symbol("x²", "it")),
        "k3": k3,
        "r_k3": product(ratio, k3),
        "r_k1": product(ratio, x),
    }
    anchor = call("π_old" if kl.to == "old" else "π_ref", symbol("o", "it"))
    distance = row("log", bracketed(fraction(_POLICY, anchor)))
    return [row(symbol("k", "it"), "=", estimates[kl.type]), row(x, "=", distance)]
