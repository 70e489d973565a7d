"""The reward of a completion before anything is compared: its terms and what takes them away, in the order in
which the worker does it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, assert_never

from backend.config import knobs
from backend.config.formula.mathml import (
    Math,
    bracketed,
    call,
    fraction,
    number,
    product,
    row,
    summed,
    symbol,
    word,
)
from backend.config.formula.symbols import (
    COMPLETION,
    ONE,
    REWARD,
    SUM,
    is_reward_intermediate,
    limited,
    log_of,
)
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
from backend.config.rewards import CALLED, CorrectnessReward, LengthReward, PluginReward, RewardTerm
from backend.config.run import RunConfig

PENALTY = word("length_penalty", is_symbol=True)
OTHERS = "for all other domains"
_CORRECT = symbol("correct", "i")
_TOKENS = symbol("tokens", "i")


class Share(NamedTuple):
    """The terms that the prompts of some domains are rewarded by."""

    terms: Sequence[RewardTerm]
    whose: tuple[Math | str, ...]
    """Domains that the terms apply to; empty for all."""


def reward_rows(config: RunConfig) -> list[Math]:
    """Definition of the reward R."""
    shares = shares_of(config)
    if is_decoupled(config.objective):
        rows = [row for share in shares for row in _apart(config, share)]
    else:
        rows = [*_kl_row(config.objective), *_total(config, shares)]
    return [*rows, *_terms(config, shares), *_penalty(config)]


def shares_of(config: RunConfig) -> list[Share]:
    """Return the terms of each domain that has its own, then those of all others."""
    general = {term.label: term for term in config.rewards if not term.domain}
    named = sorted({term.domain for term in config.rewards} - {""})
    if not named:
        return [Share(list(general.values()), ())]
    shares = [
        Share(list((general | _of(config, domain)).values()), ("for", word(domain))) for domain in named
    ]
    other_shares = (
        [Share(list(general.values()), (OTHERS,))] if general and _has_others(config, named) else []
    )
    return [*shares, *other_shares]


def _has_others(config: RunConfig, named: Sequence[str]) -> bool:
    """Return whether prompts may have another domain; rows of datasets may name their own."""
    return not _are_made_here(config) or any(source.domain not in named for source in config.problems)


def _are_made_here(config: RunConfig) -> bool:
    """Return whether every prompt comes with an answer and the domain of its source."""
    return all(isinstance(source, SumsProblem | ReasoningGymProblem) for source in config.problems)


def _of(config: RunConfig, domain: str) -> dict[str, RewardTerm]:
    return {term.label: term for term in config.rewards if term.domain == domain}


def is_decoupled(objective: Objective) -> bool:
    """Return whether each term is normalised apart (GDPO)."""
    return getattr(objective.advantage, "multi_reward", "sum") == "gdpo"


def name_of(term: RewardTerm) -> Math:
    """Return a term by its name in metrics; a user's own term is distinguished from a symbol."""
    return word(f"plugin {term.label}" if isinstance(term, PluginReward) else term.label, is_symbol=True)


def _value(term: RewardTerm) -> Math:
    """Return a term's value before its weight."""
    only = not isinstance(term, CorrectnessReward | LengthReward) and term.only_when_correct
    return product(_CORRECT, name_of(term)) if only else name_of(term)


def _required(share: Share) -> list[RewardTerm]:
    return [
        term
        for term in share.terms
        if not isinstance(term, CorrectnessReward | LengthReward) and term.required
    ]


def _kl_row(objective: Objective) -> list[Math]:
    """KL in the reward of a completion; with a critic each token's reward loses its own."""
    if objective.critic is not None or not objective.kl_in_reward or isinstance(objective.kl, knobs.NoKl):
        return []
    penalty = summed("t", limited(log_of("π_old", "π_ref")))
    return [row(REWARD, "=", SUM, "−", kl_weight(objective.kl), penalty)]


def _total(config: RunConfig, shares: Sequence[Share]) -> list[Math]:
    """The weighted sum, what truncation leaves of it, the length penalty, and what a required term takes."""
    total = SUM if is_reward_intermediate(config.objective) else REWARD
    penalty = _penalty_term(config)
    rule = config.length.truncated
    match rule:
        case KeepTruncated() | MaskTruncated():
            rows = [row(total, "=", _weighted(share, penalty), *share.whose) for share in shares]
        case ScaleTruncatedReward():
            weighted_sum, factor = symbol("sum", "i"), symbol("f", "i")
            left = product(factor, weighted_sum)
            scaled = row(total, "=", row(left, "+", *penalty) if penalty else left)
            sums = [row(weighted_sum, "=", _weighted(share, []), *share.whose) for share in shares]
            rows = [scaled, _factor(config, rule, weighted_sum, factor), *sums]
        case _:
            assert_never(rule)
    return [*rows, *(_gate(total, share) for share in shares if _required(share))]


def _penalty_term(config: RunConfig) -> list[Math]:
    return [] if isinstance(config.length.penalty, NoLengthPenalty) else [PENALTY]


def _weighted(share: Share, extra: Sequence[Math]) -> Math:
    """Weight times term, added up; a weight of 1 is not written and one of 0 takes no part."""
    parts: list[Math | str] = []
    counted = [(term.weight, _value(term)) for term in share.terms if term.weight]
    for weight, value in [*counted, *((1.0, value) for value in extra)]:
        sign = "−" if weight < 0 else "+"
        factor = value if abs(weight) == 1 else product(number(abs(weight)), value)
        parts += [sign, factor] if parts or weight < 0 else [factor]
    return row(*parts) if parts else number(0)


def _factor(config: RunConfig, rule: ScaleTruncatedReward, scaled: Math, name: Math) -> Math:
    cut = row(
        "was truncated at", number(config.sampling.max_new_tokens), "tokens and", scaled, ">", number(0)
    )
    return row(name, "=", number(rule.factor), "where", COMPLETION, cut, ",", "else", ONE)


def _gate(total: Math, share: Share) -> Math:
    """A completion that misses a required term has nothing else either."""
    parts: list[Math | str] = []
    for term in _required(share):
        parts += ["or"] if parts else []
        parts += [_value(term), "≤", number(0)]
    return row(total, "=", number(0), "where", *parts, *share.whose)


def _apart(config: RunConfig, share: Share) -> Iterator[Math]:
    """GDPO: the terms of j with their weights, each with what truncation and required terms leave of it."""
    weight, value = symbol("w", "j"), symbol("R", "ij")
    terms = [(term.weight, _value(term)) for term in share.terms]
    listed: list[Math | str] = []
    for term_weight, term in [*terms, *((1.0, penalty) for penalty in _penalty_term(config))]:
        listed += [","] if listed else []
        listed += [product(number(term_weight), term)]
    yield row(product(weight, value), "=", *listed, *share.whose)
    rule = config.length.truncated
    if isinstance(rule, ScaleTruncatedReward):
        cut = row("was truncated at", number(config.sampling.max_new_tokens), "tokens and")
        gain = row(product(weight, value), ">", number(0))
        yield row(value, "←", product(number(rule.factor), value), "where", COMPLETION, cut, gain)
    if _required(share):
        yield _gate(value, share)


def _penalty(config: RunConfig) -> list[Math]:
    rule, most = config.length.penalty, config.sampling.max_new_tokens
    match rule:
        case NoLengthPenalty():
            return []
        case SoftOverlong() | MagistralPenalty():
            ramp = rule.ramp(most)
            beyond = row(number(ramp.start), "−", _TOKENS)
            value = call("clip", fraction(beyond, number(ramp.width)), number(-1), number(0))
            tenth = [number(0.1)] if isinstance(rule, MagistralPenalty) else []
            return [row(PENALTY, "=", product(*tenth, value))]
        case _:
            assert_never(rule)


def _terms(config: RunConfig, shares: Sequence[Share]) -> list[Math]:
    """Terms that are made of something else; those of a domain say so."""
    used = [term for share in shares for term in share.terms]
    rows: list[Math] = []
    for term in config.rewards:
        if term not in used:
            continue
        if isinstance(term, CorrectnessReward) and term.map == "-1/1":
            mapped = row(number(2), symbol("score"), "−", ONE)
            rows.append(row(name_of(term), "=", mapped, *_whose(term, config)))
        if isinstance(term, LengthReward):
            rows += _brevity(name_of(term))
    return list({definition.text: definition for definition in rows}.values())


def _whose(term: RewardTerm, config: RunConfig) -> tuple[Math | str, ...]:
    if term.domain:
        return "for", word(term.domain)
    is_replaced = any(
        domain_term.domain and domain_term.label == term.label for domain_term in config.rewards
    )
    return (OTHERS,) if is_replaced else ()


def _brevity(name: Math) -> list[Math]:
    brevity, group = symbol("brevity", "i"), symbol("tokens", "group")
    longer = row(_TOKENS, "−", call("min", group))
    share = fraction(longer, bracketed(row(call("max", group), "−", call("min", group))))
    wrong = call("min", brevity, number(0))
    return [
        row(name, "=", brevity, "where", _CORRECT, "=", ONE, ",", "else", wrong),
        row(brevity, "=", number(0.5), "−", share, ",", number(0), "where all of", group, "are equal"),
    ]


def may_be_unscored(config: RunConfig) -> bool:
    """Return whether a completion may lack a reward: a call failed or the right answer is unknown."""
    asks = any(_asks_for_correctness(term) for term in config.rewards)
    calls = any(isinstance(term, CALLED) for term in config.rewards)
    return calls or (asks and not _are_made_here(config))


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
