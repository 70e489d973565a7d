"""The loss of an objective written out with the numbers in use, as text and as MathML."""

from collections.abc import Mapping
from typing import TypedDict, assert_never

from backend.config import knobs
from backend.config.formula.critic import critic_definitions, token_advantage
from backend.config.formula.legend import Entry, legend
from backend.config.formula.mathml import (
    Math,
    bracketed,
    fraction,
    lines,
    number,
    product,
    row,
    summed,
    symbol,
)
from backend.config.formula.notes import notes
from backend.config.formula.ratio import correction_definitions, ratio_definitions
from backend.config.formula.reward import against_tokens, compared, reward_definitions
from backend.config.formula.shaped_reward import reward_rows
from backend.config.formula.surrogate import kl_definitions, surrogate_definitions, surrogate_term
from backend.config.formula.symbols import LENGTH, ONE, POLICY, advantage_of, is_per_token
from backend.config.formula.tokens import token_weighted, trained, trained_definition
from backend.config.formula.updates import update_rows
from backend.config.formula.weights import (
    entropy_weight,
    entropy_weight_definition,
    kl_weight,
    kl_weight_definition,
    off_policy_definition,
    reference_definition,
)
from backend.config.objective import Objective
from backend.config.run import RunConfig


class Formula(TypedDict):
    """A formula in both forms, with what has to be said about it."""

    text: str
    """The whole formula as text, without the legend."""
    mathml: str
    """Mathematical lines of the formula, as MathML."""
    notes: list[str]
    """The sentences under them: what is left out, what divisors count, how often a step is gone through."""
    legend: list[Entry]
    """Meaning of each symbol of the formula, in order of appearance."""


def formula(config: RunConfig) -> Formula:
    """Return the loss that a run minimises, followed by the definitions of its symbols.

    Example: the text of the defaults begins with "L = − 1/B ∑ᵢ 1/|oᵢ| ∑ₜ min(rᵢₜ Aᵢ, ".
    """
    objective = _with_constant(config)
    block = lines([_loss(objective), _advantage(objective), *_definitions(objective, config)])
    sentences = notes(config, [symbol.text for symbol in block.symbols])
    return {
        "text": "\n".join([block.text, *sentences]),
        "mathml": block.mathml,
        "notes": sentences,
        "legend": legend(config, block.symbols),
    }


def _with_constant(config: RunConfig) -> Objective:
    """Return the objective with the run's length cap, if its aggregation divides by it."""
    objective = config.objective
    rule = objective.aggregation
    if not isinstance(rule, knobs.SeqMeanTokenSumNorm) or rule.l_max != "max_new_tokens":
        return objective
    number_of_tokens = knobs.SeqMeanTokenSumNorm(l_max=config.sampling.max_new_tokens)
    return objective.model_copy(update={"aggregation": number_of_tokens})


def _loss(objective: Objective) -> Math:
    terms: list[Math | str] = [symbol("L"), "=", "−", _policy_term(objective)]
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
        surprise_of_correct = summed("i correct", summed("t", surprise))
        terms += ["−", number(objective.nll.coef), "·", share, surprise_of_correct]
    return row(*terms)


def _policy_term(objective: Objective) -> Math:
    core = surrogate_term(objective)
    if objective.correction.type != "none":
        core = product(symbol("w", "i" if objective.correction.is_shared else "it"), core)
    if objective.off_policy_mask.type != "none":
        core = product(symbol("M", _whose(objective)), core)
    is_shared = objective.correction.type == "none" or objective.correction.is_shared
    is_per_completion = objective.ratio.is_shared and is_shared and not objective.surrogate.weighs_tokens
    return _aggregated(
        trained(core, objective.token_weight), objective.aggregation, per_completion=is_per_completion
    )


def _aggregated(core: Math, aggregation: knobs.Aggregation, *, per_completion: bool) -> Math:
    """Return the reduction around a term; a term that a completion's tokens share needs no sum over them."""
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
    value = _judged(advantage)
    return row(advantage_of(objective), "=", token_weighted(value, objective.token_weight))


def _judged(advantage: knobs.Advantage) -> Math:
    match advantage:
        case knobs.Critic():
            return token_advantage(advantage)
        case knobs.OptimalTokenBaseline():
            return against_tokens()
        case _:
            return compared(advantage)


def _definitions(objective: Objective, config: RunConfig) -> list[Math]:
    critic = [] if objective.critic is None else critic_definitions(objective, objective.critic)
    return [
        *reward_definitions(objective.advantage),
        *critic,
        *reward_rows(config),
        *ratio_definitions(objective),
        *trained_definition(objective.token_weight),
        *surrogate_definitions(objective),
        *correction_definitions(objective.correction),
        *off_policy_definition(objective, subscript=_whose(objective)),
        *kl_definitions(objective),
        *reference_definition(objective),
        *kl_weight_definition(objective.kl),
        *entropy_weight_definition(objective.entropy),
        *update_rows(config),
    ]
