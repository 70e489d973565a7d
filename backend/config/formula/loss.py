"""Compose the formula of the loss, with the numbers of the config, as text and as MathML."""

from collections.abc import Mapping
from typing import TypedDict, assert_never

from backend.config import knobs
from backend.config.formula.critic import critic_definitions, token_advantage
from backend.config.formula.legend import CONFIG_MEANINGS, ELEMENTARY_FUNCTIONS, Entry, legend
from backend.config.formula.meanings import MEANINGS
from backend.config.formula.notation import factor, make_block, number
from backend.config.formula.notes import notes
from backend.config.formula.ratio import correction_definitions, ratio_definitions
from backend.config.formula.reward import against_tokens, reward_definitions, reward_difference
from backend.config.formula.shaped_reward import reward_rows
from backend.config.formula.surrogate import kl_definitions, surrogate_definitions, surrogate_term
from backend.config.formula.symbols import POLICY, advantage_symbol, is_per_token
from backend.config.formula.tokens import token_weighted, trained_definition, trained_term
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
    """A formula as text and as MathML, with notes and a legend."""

    text: str
    """The formula and its notes as text, without the legend."""
    mathml: str
    """The formula as MathML, without the notes."""
    notes: list[str]
    """Sentences about groups that are left out, divisors, passes and sampling."""
    legend: list[Entry]
    """Meanings of the symbols, in order of appearance."""


def formula(config: RunConfig) -> Formula:
    """Return the formula of the loss of a run, followed by the definitions of its symbols.

    Example: the text of the defaults begins with "L = − 1/B ∑ᵢ 1/|oᵢ| ∑ₜ min(rᵢₜ Aᵢ, ".
    """
    objective = _set_length_cap(config)
    rows = [_loss(objective), _advantage(objective), *_definitions(objective, config)]
    block = make_block(rows, {*ELEMENTARY_FUNCTIONS, *CONFIG_MEANINGS, *MEANINGS})
    sentences = notes(config, list(block.symbols))
    return {
        "text": "\n".join([block.text, *sentences]),
        "mathml": block.mathml,
        "notes": sentences,
        "legend": legend(config, block.symbols),
    }


def _set_length_cap(config: RunConfig) -> Objective:
    """Return the objective with the maximum completion length as a
    number, if its aggregation divides by it.
    """
    objective = config.objective
    rule = objective.aggregation
    if not isinstance(rule, knobs.SeqMeanTokenSumNorm) or rule.l_max != "max_new_tokens":
        return objective
    number_of_tokens = knobs.SeqMeanTokenSumNorm(l_max=config.sampling.max_new_tokens)
    return objective.model_copy(update={"aggregation": number_of_tokens})


def _loss(objective: Objective) -> str:
    rows = [f"L = − {_policy_term(objective)}"]
    kl = objective.kl
    if not isinstance(kl, knobs.NoKl) and not objective.kl_in_reward:
        rule = knobs.SeqMeanTokenSum() if kl.aggregation == "seq_sum" else objective.aggregation
        estimate = trained_term("kᵢₜ", objective.token_weight)
        if isinstance(kl.coef, Mapping):
            weighted_kl = f"{kl_weight(kl)} {estimate}"
            rows.append(f"+ {_aggregation(weighted_kl, rule, per_completion=False)}")
        else:
            rows.append(f"+ {kl_weight(kl)} · {_aggregation(estimate, rule, per_completion=False)}")
    if not isinstance(objective.entropy, knobs.NoEntropyBonus):
        entropy = trained_term("Hᵢₜ", objective.token_weight)
        entropy_term = _aggregation(entropy, objective.aggregation, per_completion=False)
        rows.append(f"− {entropy_weight(objective.entropy)} · {entropy_term}")
    if isinstance(objective.nll, knobs.PositiveNll):
        logprob = trained_term(f"log {POLICY}", objective.token_weight)
        correct = f"1/(∑_i correct |oᵢ|) ∑_i correct ∑ₜ {logprob}"
        rows.append(f"− {number(objective.nll.coef)} · {correct}")
    return " ".join(rows)


def _policy_term(objective: Objective) -> str:
    term = surrogate_term(objective)
    if objective.correction.type != "none":
        term = f"{'wᵢ' if objective.correction.is_shared else 'wᵢₜ'} {factor(term)}"
    if objective.off_policy_mask.type != "none":
        term = f"M{_whose(objective)} {factor(term)}"
    is_shared = objective.correction.type == "none" or objective.correction.is_shared
    is_per_completion = objective.ratio.is_shared and is_shared and not objective.surrogate.weighs_tokens
    return _aggregation(
        trained_term(term, objective.token_weight), objective.aggregation, per_completion=is_per_completion
    )


def _aggregation(core: str, aggregation: knobs.Aggregation, *, per_completion: bool) -> str:
    """Return the aggregation of a term. A term that all tokens of a
    completion share needs no sum over tokens.
    """
    tokens = f"{'|oᵢ|' if per_completion else '∑ₜ'} {factor(core)}"
    match aggregation:
        case knobs.SeqMeanTokenMean():
            return f"1/B ∑ᵢ {core if per_completion else f'1/|oᵢ| {tokens}'}"
        case knobs.TokenMean():
            return f"1/(∑ᵢ |oᵢ|) ∑ᵢ {tokens}"
        case knobs.PromptMean():
            return f"1/P ∑_p 1/(∑_i∈p |oᵢ|) ∑_i∈p {tokens}"
        case knobs.SeqMeanTokenSum():
            return f"1/B ∑ᵢ {tokens}"
        case knobs.SeqMeanTokenSumNorm(l_max=l_max):
            constant = "L_max" if l_max == "max_new_tokens" else number(l_max)
            return f"1/(B {constant}) ∑ᵢ {tokens}"
        case _:
            assert_never(aggregation)


def _whose(objective: Objective) -> str:
    return "ᵢₜ" if is_per_token(objective) else "ᵢ"


def _advantage(objective: Objective) -> str:
    value = token_weighted(_judged_reward(objective.advantage), objective.token_weight)
    return f"{advantage_symbol(objective)} = {value}"


def _judged_reward(advantage: knobs.Advantage) -> str:
    match advantage:
        case knobs.Critic():
            return token_advantage(advantage)
        case knobs.OptimalTokenBaseline():
            return against_tokens()
        case _:
            return reward_difference(advantage)


def _definitions(objective: Objective, config: RunConfig) -> list[str]:
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
