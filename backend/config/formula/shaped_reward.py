"""Formulas of the reward of a completion: its terms and all reductions, in the order of the worker."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, assert_never

from backend.config import knobs
from backend.config.formula.notation import mark_word, number, term
from backend.config.formula.symbols import is_reward_intermediate, limited_logarithm, log_probability_ratio
from backend.config.formula.weights import kl_weight
from backend.config.length import (
    KeepTruncated,
    MagistralPenalty,
    MaskTruncated,
    NoLengthPenalty,
    ScaleTruncatedReward,
    SoftOverlong,
)
from backend.config.objective import Objective
from backend.config.problems import ReasoningGymProblem, SumsProblem
from backend.config.rewards import CALLED_TERMS, CorrectnessReward, LengthReward, PluginReward, RewardTerm
from backend.config.run import RunConfig

PENALTY = term("length_penalty")
ALL_OTHERS_SUFFIX = " for all other domains"


class Share(NamedTuple):
    """The reward terms of some domains."""

    terms: Sequence[RewardTerm]
    whose: str
    """Text at the end of a line that names the domains, or "" for all domains."""


def reward_rows(config: RunConfig) -> list[str]:
    """Return the definitions of the reward R."""
    shares = domain_shares(config)
    if is_decoupled(config.objective):
        rows = [row for share in shares for row in _gdpo_rows(config, share)]
    else:
        rows = [*_kl_row(config.objective), *_total(config, shares)]
    return [*rows, *_terms(config, shares), *_penalty(config)]


def domain_shares(config: RunConfig) -> list[Share]:
    """Return the terms of each domain with separate terms, and then those of all other domains."""
    general = {term.label: term for term in config.rewards if not term.domain}
    domains = sorted({term.domain for term in config.rewards} - {""})
    if not domains:
        return [Share(list(general.values()), "")]
    shares = [
        Share(list((general | _domain_terms(config, domain)).values()), f" for {mark_word(domain)}")
        for domain in domains
    ]
    other_shares = (
        [Share(list(general.values()), ALL_OTHERS_SUFFIX)] if general and _has_others(config, domains) else []
    )
    return [*shares, *other_shares]


def _has_others(config: RunConfig, named_domains: Sequence[str]) -> bool:
    """Return whether prompts may have other domains, which rows of datasets can name."""
    return not _are_made_here(config) or any(source.domain not in named_domains for source in config.problems)


def _are_made_here(config: RunConfig) -> bool:
    """Return whether all prompts have an answer and the domain of their source."""
    return all(isinstance(source, SumsProblem | ReasoningGymProblem) for source in config.problems)


def _domain_terms(config: RunConfig, domain: str) -> dict[str, RewardTerm]:
    return {term.label: term for term in config.rewards if term.domain == domain}


def is_decoupled(objective: Objective) -> bool:
    """Return whether each reward term is normalised separately (GDPO)."""
    return getattr(objective.advantage, "multi_reward", "sum") == "gdpo"


def term_name(reward_term: RewardTerm) -> str:
    """Return the name of a term in metrics, with a prefix for plugins to distinguish them from symbols."""
    label = reward_term.label
    return f"plugin {label}" if isinstance(reward_term, PluginReward) else label


def _value(reward_term: RewardTerm) -> str:
    """Return the formula of a term before its weight."""
    name = term(term_name(reward_term))
    is_conditional = (
        not isinstance(reward_term, CorrectnessReward | LengthReward) and reward_term.only_when_correct
    )
    return f"correctᵢ {name}" if is_conditional else name


def _required_terms(share: Share) -> list[RewardTerm]:
    return [
        term
        for term in share.terms
        if not isinstance(term, CorrectnessReward | LengthReward) and term.required
    ]


def _kl_row(objective: Objective) -> list[str]:
    """Return the definition of R with the KL in the reward. With a critic, token rewards contain the KL."""
    if objective.critic is not None or not objective.kl_in_reward or isinstance(objective.kl, knobs.NoKl):
        return []
    log_ratio = limited_logarithm(log_probability_ratio("π_old", "π_ref"))
    return [f"Rᵢ = rewardᵢ − {kl_weight(objective.kl)} ∑ₜ {log_ratio}"]


def _total(config: RunConfig, shares: Sequence[Share]) -> list[str]:
    """Return the weighted sum with the rules for truncation, length penalty and required terms."""
    total = "rewardᵢ" if is_reward_intermediate(config.objective) else "Rᵢ"
    penalty = _penalty_term(config)
    rule = config.length.truncated
    match rule:
        case KeepTruncated() | MaskTruncated():
            rows = [f"{total} = {_weighted_sum(share, penalty)}{share.whose}" for share in shares]
        case ScaleTruncatedReward():
            truncation = f"oᵢ was truncated at {config.sampling.max_new_tokens} tokens and sumᵢ > 0"
            rows = [
                " + ".join([f"{total} = fᵢ sumᵢ", *penalty]),
                f"fᵢ = {number(rule.factor)} where {truncation}, else 1",
                *(f"sumᵢ = {_weighted_sum(share, [])}{share.whose}" for share in shares),
            ]
        case _:
            assert_never(rule)
    return [*rows, *(_gate(total, share) for share in shares if _required_terms(share))]


def _penalty_term(config: RunConfig) -> list[str]:
    return [] if isinstance(config.length.penalty, NoLengthPenalty) else [PENALTY]


def _weighted_sum(share: Share, extra_terms: Sequence[str]) -> str:
    """Return the weighted sum of the terms, without weights of 1 and terms of weight 0."""
    text_parts: list[str] = []
    weighted_values = [(term.weight, _value(term)) for term in share.terms if term.weight]
    for weight, value in [*weighted_values, *((1.0, value) for value in extra_terms)]:
        sign = "−" if weight < 0 else "+"
        weighted_value = value if abs(weight) == 1 else f"{number(abs(weight))} {value}"
        text_parts += [sign, weighted_value] if text_parts or weight < 0 else [weighted_value]
    return " ".join(text_parts) or "0"


def _gate(total: str, share: Share) -> str:
    """Return the rule that the total is 0 without a required term."""
    condition = " or ".join(f"{_value(term)} ≤ 0" for term in _required_terms(share))
    return f"{total} = 0 where {condition}{share.whose}"


def _gdpo_rows(config: RunConfig, share: Share) -> Iterator[str]:
    """Yield GDPO's weighted terms, with the rules for truncation and required terms."""
    terms = [(term.weight, _value(term)) for term in share.terms]
    weighted = [*terms, *((1.0, penalty) for penalty in _penalty_term(config))]
    yield f"wⱼ Rᵢⱼ = {', '.join(f'{number(weight)} {value}' for weight, value in weighted)}{share.whose}"
    rule = config.length.truncated
    if isinstance(rule, ScaleTruncatedReward):
        truncation = f"oᵢ was truncated at {config.sampling.max_new_tokens} tokens and wⱼ Rᵢⱼ > 0"
        yield f"Rᵢⱼ ← {number(rule.factor)} Rᵢⱼ where {truncation}"
    if _required_terms(share):
        yield _gate("Rᵢⱼ", share)


def _penalty(config: RunConfig) -> list[str]:
    rule, limit = config.length.penalty, config.sampling.max_new_tokens
    match rule:
        case NoLengthPenalty():
            return []
        case SoftOverlong() | MagistralPenalty():
            ramp = rule.ramp(limit)
            tenth = "0.1 " if isinstance(rule, MagistralPenalty) else ""
            excess = f"({number(ramp.start)} − tokensᵢ) / {number(ramp.width)}"
            return [f"{PENALTY} = {tenth}clip({excess}, −1, 0)"]
        case _:
            assert_never(rule)


def _terms(config: RunConfig, shares: Sequence[Share]) -> list[str]:
    """Return the definitions of terms that are computed from other symbols."""
    used_terms = [term for share in shares for term in share.terms]
    rows: list[str] = []
    for reward_term in config.rewards:
        name = term(term_name(reward_term))
        if reward_term not in used_terms:
            continue
        if isinstance(reward_term, CorrectnessReward) and reward_term.map == "-1/1":
            rows.append(f"{name} = 2 score − 1{_whose(reward_term, config)}")
        if isinstance(reward_term, LengthReward):
            rows += _brevity(name)
    return list(dict.fromkeys(rows))


def _whose(term: RewardTerm, config: RunConfig) -> str:
    if term.domain:
        return f" for {mark_word(term.domain)}"
    is_replaced = any(
        domain_term.domain and domain_term.label == term.label for domain_term in config.rewards
    )
    return ALL_OTHERS_SUFFIX if is_replaced else ""


def _brevity(name: str) -> list[str]:
    group = "tokens_group"
    share = f"(tokensᵢ − min({group})) / (max({group}) − min({group}))"
    return [
        f"{name} = brevityᵢ where correctᵢ = 1, else min(brevityᵢ, 0)",
        f"brevityᵢ = 0.5 − {share}, 0 where all of {group} are equal",
    ]


def may_be_unscored(config: RunConfig) -> bool:
    """Return whether a completion may have no reward, because a call fails or the answer is unknown."""
    needs_answer = any(_asks_for_correctness(term) for term in config.rewards)
    may_fail = any(isinstance(term, CALLED_TERMS) for term in config.rewards)
    return may_fail or (needs_answer and not _are_made_here(config))


def _asks_for_correctness(term: RewardTerm) -> bool:
    return isinstance(term, CorrectnessReward | LengthReward) or term.only_when_correct


MEANINGS = {
    "Rᵢ": "reward of completion i",
    "Rᵢₜ": "reward paid after token t of completion i",
    "rewardᵢ": "reward of completion i before the KL or the critic sees it",
    "sumᵢ": "weighted sum of the reward terms of completion i",
    "fᵢ": "what truncation leaves of a positive reward",
    "R_group": "rewards of all completions of i's prompt",
    "R_group without i": "rewards of the other completions of i's prompt",
    "R_step": "rewards of all completions that train in the step",
    "wⱼ": "weight of reward term j",
    "Rᵢⱼ": "reward term j of completion i",
    "R_group,j": "reward term j of all completions of i's prompt",
    "score": "how right the answer is: 1 right, 0 wrong; partial credit lies between",
    "length_penalty": "what length takes off the reward",
    "correctᵢ": "1 where the answer of completion i is right, else 0",
    "tokensᵢ": "tokens of completion i as it was sampled",
    "tokens_group": "tokens of each completion of i's prompt",
    "brevityᵢ": "0.5 for the shortest of the group to −0.5 for the longest",
}
"""Meanings of the symbols that this module writes."""
