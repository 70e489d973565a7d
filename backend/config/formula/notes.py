"""Write the notes under a formula, about filters, divisors, truncation, passes and sampling."""

from collections.abc import Iterator, Sequence
from typing import assert_never

from backend.config.filters import (
    AccuracyFilter,
    ActiveRefill,
    DynamicRefill,
    KeepAllGroups,
    NeighboursRefill,
    NoRefill,
    ZeroVarianceFilter,
)
from backend.config.formula.shaped_reward import may_be_unscored
from backend.config.knobs import SequenceK3, TokenMean
from backend.config.length import KeepTruncated, MaskTruncated, NoLengthPenalty, ScaleTruncatedReward
from backend.config.rewards import LengthReward
from backend.config.run import RunConfig


def notes(config: RunConfig, symbols: Sequence[str]) -> list[str]:
    """Return the notes for a formula with these symbols."""
    divisors = [name for name in symbols if name in {"B", "P"}]
    aggregation = config.objective.aggregation
    if isinstance(aggregation, TokenMean) and aggregation.over == "sampled":
        divisors = ["Σ |oᵢ|"]
    return [
        *_groups(config),
        *_refill(config),
        *(_divisors(config, divisors) if divisors else []),
        *_truncation(config, is_counted="B" in symbols),
        *_rejection(config, divisors=[name for name in symbols if name in {"B", "P"}]),
        *_unscored_notes(config),
        *_passes(config),
        *_critic(config),
        *_sampling_notes(config),
    ]


def _groups(config: RunConfig) -> Iterator[str]:
    rule = config.filters.groups
    match rule:
        case KeepAllGroups():
            return
        case ZeroVarianceFilter():
            judging_note = f", judged {_pending_terms(config)}" if _pending_terms(config) else ""
            yield f"A group is trained on if its rewards differ{judging_note}; the others are left out."
        case AccuracyFilter(low=low, high=high):
            yield (
                f"A group is trained on if its share of right answers is above {low:g} and below {high:g}; "
                "the others are left out."
            )
        case _:
            assert_never(rule)


def _pending_terms(config: RunConfig) -> str:
    """Return the parts of the reward that are not included yet when groups are filtered."""
    conditions = [
        *(["without the term length"] if any(isinstance(t, LengthReward) for t in config.rewards) else []),
        *(["before truncation"] if isinstance(config.length.truncated, ScaleTruncatedReward) else []),
        *(["before length_penalty"] if not isinstance(config.length.penalty, NoLengthPenalty) else []),
        *(["before the KL"] if config.objective.kl_in_reward else []),
    ]
    return " and ".join(conditions)


def _refill(config: RunConfig) -> Iterator[str]:
    rule, groups = config.filters.refill, config.sampling.prompts_per_step
    match rule:
        case NoRefill():
            return
        case DynamicRefill(max_batches=limit):
            yield f"{_until_full(groups, limit)}; groups beyond that are dropped."
        case ActiveRefill(max_batches=limit):
            yield f"{_until_full(groups, limit)}; groups beyond that train first in the next step."
        case NeighboursRefill(n=limit):
            yield f"Places of groups left out try the prompts that come next, {limit} tries in all."
        case _:
            assert_never(rule)


def _until_full(groups: int, limit: int) -> str:
    return f"Fresh prompts are sampled until {groups} groups train, in at most {limit} batches of {groups}"


def _divisors(config: RunConfig, names: Sequence[str]) -> Iterator[str]:
    """Yield notes about the groups that the divisors count, if groups are left out."""
    rule = config.filters
    if isinstance(rule.groups, KeepAllGroups):
        return
    count, are = ("counts", "it is") if len(names) == 1 else ("count", "each is")
    subject = f"{' and '.join(names)} {count}"
    if names == ["Σ |oᵢ|"] and isinstance(rule.refill, NoRefill):
        counts = "Σ |oᵢ| counts the tokens of groups left out too"
        yield f"{counts}. Leaving out advantages of 0 changes no gradient."
        if rule.upweight:
            yield "The loss is multiplied by groups sampled / groups that train."
    elif isinstance(rule.refill, NoRefill) and not rule.upweight:
        factor = f"{are} what trains, times groups sampled / groups that train"
        yield f"{subject} the groups left out too: {factor}. Leaving out advantages of 0 changes no gradient."
    else:
        yield f"{subject} only what trains."


def _truncation(config: RunConfig, *, is_counted: bool) -> Iterator[str]:
    rule = config.length.truncated
    match rule:
        case KeepTruncated() | ScaleTruncatedReward():
            return
        case MaskTruncated():
            truncation = f"oᵢ was truncated at {config.sampling.max_new_tokens} tokens"
            remark = _still(config, is_counted=is_counted)
            yield f"|oᵢ| = 0 and every term of it 0 where {truncation}{remark}."
        case _:
            assert_never(rule)


def _still(config: RunConfig, *, is_counted: bool) -> str:
    """Return the statistics in which a masked completion still counts."""
    reward_part = [] if config.objective.critic is not None else ["Rᵢ still counts in means and deviations"]
    divisor_part = ["oᵢ still counts in B"] if is_counted else []
    statistics = [*reward_part, *divisor_part]
    return f"; {', and '.join(statistics)}" if statistics else ""


def _rejection(config: RunConfig, *, divisors: Sequence[str]) -> Iterator[str]:
    if not isinstance(config.objective.correction, SequenceK3):
        return
    counting_note = f" and still counted in {' and '.join(divisors)}" if divisors else ""
    yield f"Where wᵢ = 0 the completion is left out, its tokens in every divisor too{counting_note}."


def _unscored_notes(config: RunConfig) -> Iterator[str]:
    if may_be_unscored(config):
        yield (
            "Where a reward term has no value the completion has no reward: its advantage is 0, it is in no "
            "mean and no deviation, and it still counts in divisors and in the KL."
        )


def _passes(config: RunConfig) -> Iterator[str]:
    updates = config.updates
    steps = "one optimizer step" if updates.minibatches == 1 else f"{updates.minibatches} optimizer steps"
    order = ", on whole groups in a random order" if updates.minibatches > 1 else ""
    if updates.resample_each_epoch:
        sampling_note = "each over fresh rollouts of the policy that opened the step"
        yield f"Each step makes {_times(updates.epochs)}, {sampling_note}, with {steps} in each."
    elif updates.epochs * updates.minibatches > 1:
        yield f"Each step makes {_times(updates.epochs)} over its rollouts, with {steps} in each{order}."


def _times(passes: int) -> str:
    return "one pass" if passes == 1 else f"{passes} passes"


def _critic(config: RunConfig) -> Iterator[str]:
    value, updates = config.objective.value, config.updates
    if config.objective.critic is None:
        return
    policy_epochs = 1 if updates.resample_each_epoch else updates.epochs
    passes = _times(policy_epochs if value.epochs == "updates.epochs" else value.epochs)
    rate = f"at {value.lr_factor:g} times the learning rate"
    yield f"The critic has an optimizer of its own {rate}, and makes {passes} over each step's rollouts."
    if value.pretrain_steps:
        pretraining = (
            f"In the first {value.pretrain_steps} steps only the critic learns, from the rewards as they came"
        )
        yield f"{pretraining}; the policy does not change."


def _sampling_notes(config: RunConfig) -> Iterator[str]:
    """Yield notes about the temperature and the tokens of the learner's probabilities."""
    sampling = config.sampling
    is_plain = config.objective.ratio.logprob_temperature == "one"
    if is_plain or sampling.temperature != 1:
        yield f"π is at temperature {1 if is_plain else sampling.temperature:g}."
    if sampling.keep_mask and (sampling.top_p < 1 or sampling.top_k > 0):
        filters = [*(["top-p"] if sampling.top_p < 1 else []), *(["top-k"] if sampling.top_k > 0 else [])]
        yield f"π is over the ids that {' and '.join(filters)} left, as are π_old and π_ref."
