"""The loss of an objective written out with the numbers in use, as text and as MathML."""

from collections.abc import Mapping
from typing import TypedDict, assert_never

from backend.config import knobs
from backend.config.objective import Objective
from backend.config.run import RunConfig
from backend.formula.critic import critic_definitions, token_advantage
from backend.formula.mathml import (
    Math,
    bracketed,
    call,
    fraction,
    lines,
    number,
    product,
    row,
    summed,
    symbol,
)
from backend.formula.ratio import correction_definitions, ratio_definitions
from backend.formula.reward import compared, reward_definitions
from backend.formula.surrogate import kl_definitions, surrogate_definitions, surrogate_term
from backend.formula.symbols import ADVANTAGE, LENGTH, ONE, PER_COMPLETION, POLICY, REWARD, is_per_token
from backend.formula.tokens import token_weighted, trained, trained_definition
from backend.formula.weights import (
    entropy_weight,
    entropy_weight_definition,
    kl_weight,
    kl_weight_definition,
    off_policy_definition,
    reference_definition,
)


class Formula(TypedDict):
    """A formula in both forms."""

    text: str
    mathml: str


def formula(config: RunConfig) -> Formula:
    """What the run minimises, and under it the definitions of its symbols.

    B completions of P prompts in one optimizer batch, B_step in the whole step; oᵢₜ is token t of completion
    i, |oᵢ| its length; sg[.] has no gradient.
    Example: the text of the defaults begins with "L = − 1/B ∑ᵢ 1/|oᵢ| ∑ₜ min(rᵢₜ Aᵢ, ".
    """
    objective = _with_constant(config)
    definitions = [*_definitions(objective), *_data_definitions(config)]
    rows = [_loss(objective, config), _advantage(objective), *ratio_definitions(objective), *definitions]
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
        share = fraction(ONE, bracketed(summed("i correct", LENGTH)))
        surprise = trained(row("log", POLICY)._replace(is_atom=True), objective.token_weight)
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
        rows.append(row(policy, "at temperature", ONE if is_plain else number(sampling.temperature)))
    if sampling.keep_mask and (sampling.top_p < 1 or sampling.top_k > 0):
        cuts = [*(["top-p"] if sampling.top_p < 1 else []), *(["top-k"] if sampling.top_k > 0 else [])]
        rows.append(row(policy, "over the ids that " + " and ".join(cuts) + " left, also in π_old and π_ref"))
    if config.filters.upweight:
        groups = fraction(symbol("groups", "sampled"), symbol("groups", "kept"))
        rows.append(row(symbol("u"), "=", groups))
    if config.length.truncated.type == "mask":
        cut = row("where", completion, "was cut off at", number(sampling.max_new_tokens), "tokens")
        rows.append(row(LENGTH, "=", number(0), "and every term of it", number(0), cut))
    return rows


def _policy_term(objective: Objective) -> Math:
    core = surrogate_term(objective)
    if objective.correction.type != "none":
        core = product(symbol("w", "i" if objective.correction.type.startswith("seq") else "it"), core)
    if objective.off_policy_mask.type != "none":
        core = product(symbol("M", _whose(objective)), core)
    is_shared = objective.correction.type in {"none", "seq_tis", "seq_mask"}
    whole = objective.ratio.type in PER_COMPLETION and is_shared
    return _aggregated(trained(core, objective.token_weight), objective.aggregation, per_completion=whole)


def _aggregated(core: Math, aggregation: knobs.Aggregation, *, per_completion: bool) -> Math:
    """The reduction around a term; one that all tokens of a completion share needs no sum over them."""
    tokens = product(LENGTH, core) if per_completion else summed("t", core)
    completions = symbol("B")
    match aggregation:
        case knobs.SeqMeanTokenMean():
            inner = core if per_completion else row(fraction(ONE, LENGTH), tokens)
            return row(fraction(ONE, completions), summed("i", inner._replace(is_atom=True)))
        case knobs.TokenMean():
            return row(fraction(ONE, bracketed(summed("i", LENGTH))), summed("i", tokens))
        case knobs.PromptMean():
            share = fraction(ONE, bracketed(summed("i∈p", LENGTH)))
            inner = row(share, summed("i∈p", tokens))._replace(is_atom=True)
            return row(fraction(ONE, symbol("P")), summed("p", inner))
        case knobs.SeqMeanTokenSum():
            return row(fraction(ONE, completions), summed("i", tokens))
        case knobs.SeqMeanTokenSumNorm(l_max=l_max):
            constant = symbol("L", "max") if l_max == "max_new_tokens" else number(l_max)
            return row(fraction(ONE, bracketed(product(completions, constant))), summed("i", tokens))
        case _:
            assert_never(aggregation)


def _whose(objective: Objective) -> str:
    return "it" if is_per_token(objective) else "i"


def _advantage(objective: Objective) -> Math:
    advantage = objective.advantage
    value = token_advantage(advantage) if isinstance(advantage, knobs.Critic) else compared(advantage)
    name = symbol("A", "it") if is_per_token(objective) else ADVANTAGE
    return row(name, "=", token_weighted(value, objective.token_weight))


def _definitions(objective: Objective) -> list[Math]:
    return [
        *reward_definitions(objective.advantage),
        *_reward_definition(objective),
        *trained_definition(objective.token_weight),
        *surrogate_definitions(objective.surrogate),
        *correction_definitions(objective.correction),
        *off_policy_definition(objective, subscript=_whose(objective)),
        *kl_definitions(objective),
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
    return [row(REWARD, "=", symbol("reward", "i"), "−", kl_weight(objective.kl), penalty)]
