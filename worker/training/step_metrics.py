"""Metrics of a step that depend only on its groups: rewards, groups, lengths and tokens."""

import math
import re
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev

from worker.rewards.score import weighted_sums
from worker.rollout.collector import LENGTH_PENALTY, CollectedGroups
from worker.training.text_metrics import text_metrics
from worker.training.tool_metrics import tool_metrics
from worker.types import Completion, Group

REFLECTION = re.compile(
    r"\b(wait|hmm|recheck|re-check|double-check|check again|let me check|alternatively)\b", re.IGNORECASE
)
"""Pattern of words that a policy uses when it reconsiders its own work."""

Metrics = dict[str, float]


def group_metrics(collected: CollectedGroups) -> Metrics:
    """Return reward/*, groups/*, length/*, sampling/* and tokens/generated of all samples of a step.

    The sampler's own probabilities are not included, because it may have cut its distribution.
    """
    groups = collected.sampled
    return {
        **_reward_metrics(groups),
        **_unearned_metrics(groups),
        **(_unshaped_metrics(groups) if collected.is_shaped else {}),
        **_variety_metrics(collected),
        **_length_metrics(groups),
        **text_metrics(groups, opens_think=collected.opens_think),
        **(tool_metrics(groups) if collected.has_tools else {}),
        "groups/kept_frac": collected.informative / max(1, len(groups)),
        "sampling/generated_batches": collected.batches,
        **_carried_metrics(collected),
        "tokens/generated": collected.tokens,
    }


def _carried_metrics(collected: CollectedGroups) -> Metrics:
    """Return the share of training groups that were carried over from the previous step."""
    if not collected.may_carry:
        return {}
    return {"sampling/carried_frac": len(collected.carried) / max(1, len(collected.trained))}


def _reward_metrics(groups: Sequence[Group]) -> Metrics:
    rewards = _values(reward for group in groups for reward in group.rewards)
    metrics = _mean_and_std("reward", rewards)
    for term in sorted({term for group in groups for term in group.terms}):
        values = _values(value for group in groups for value in group.terms.get(term, ()))
        metrics |= _mean_and_std(f"reward/{term}", values)
    correctness = _values(value for group in groups for value in group.correctness)
    if correctness:
        metrics["reward/accuracy"] = fmean(value >= 1 for value in correctness)
    return metrics


def _unearned_metrics(groups: Sequence[Group]) -> Metrics:
    """Return reward/unearned_share: the share of the positive reward that incorrect completions received."""
    earned_sum = unearned_sum = 0.0
    for group in groups:
        for reward, correctness in zip(group.rewards, group.correctness, strict=False):
            if reward is None or correctness is None or reward <= 0:
                continue
            earned_sum += reward
            unearned_sum += reward if correctness < 1 else 0.0
    return {"reward/unearned_share": unearned_sum / earned_sum} if earned_sum else {}


def _unshaped_metrics(groups: Sequence[Group]) -> Metrics:
    """Return reward/raw_*, from the weighted sum of the terms without length penalty and required terms."""
    sums: list[float | None] = []
    for group in groups:
        raw = {name: values for name, values in group.terms.items() if name != LENGTH_PENALTY}
        sums += weighted_sums(raw, group.weights, count=len(group.completions))
    values = _values(sums)
    if not values:
        return {}
    return {"reward/raw_mean": fmean(values), "reward/raw_std": stdev(values) if len(values) > 1 else 0.0}


def _variety_metrics(collected: CollectedGroups) -> Metrics:
    metrics: Metrics = {}
    if collected.compared:
        metrics["groups/zero_variance_frac"] = collected.equal / collected.compared
    metrics["policy/distinct_frac"] = fmean(
        len({completion.text for completion in group.completions}) / len(group.completions)
        for group in collected.sampled
    )
    graded_groups = [values for group in collected.sampled if (values := _values(group.correctness))]
    if graded_groups:
        metrics["groups/expected_useful"] = fmean(map(expected_useful, graded_groups))
        metrics["groups/all_right_frac"] = fmean(min(values) >= 1 for values in graded_groups)
        metrics["groups/all_wrong_frac"] = fmean(max(values) <= 0 for values in graded_groups)
    return metrics


def expected_useful(correctness: Sequence[float]) -> float:
    """Return the probability that a new group of the same prompt has both correct and incorrect completions.

        1 - p^G - (1 - p)^G    with p = (c + 1/2) / (G + 1)

    G is the group's size and p the prompt's pass rate under Jeffreys' prior, because a group that is all
    wrong may still be solved.
    """
    size = len(correctness)
    p = (sum(value >= 1 for value in correctness) + 0.5) / (size + 1)
    return 1 - p**size - (1 - p) ** size


def _length_metrics(groups: Sequence[Group]) -> Metrics:
    completions = [completion for group in groups for completion in group.completions]
    lengths = [completion.written_tokens for completion in completions]
    metrics: Metrics = {
        "length/mean": fmean(lengths),
        "length/min": min(lengths),
        "length/max": max(lengths),
        "length/truncated_frac": fmean(completion.is_truncated for completion in completions),
        "policy/reflection_frac": fmean(
            bool(REFLECTION.search(completion.own_text)) for completion in completions
        ),
    }
    correct_lengths, incorrect_lengths = _lengths_by_correctness(groups)
    if correct_lengths:
        metrics["length/mean_correct"] = fmean(correct_lengths)
    if incorrect_lengths:
        metrics["length/mean_incorrect"] = fmean(incorrect_lengths)
    return metrics


def _lengths_by_correctness(groups: Iterable[Group]) -> tuple[list[int], list[int]]:
    correct_lengths: list[int] = []
    incorrect_lengths: list[int] = []
    for group in groups:
        for completion, value in zip(group.completions, group.correctness, strict=False):
            if value is not None:
                (correct_lengths if value >= 1 else incorrect_lengths).append(completion.written_tokens)
    return correct_lengths, incorrect_lengths


def evaluation_metrics(groups: Sequence[Group], *, k: int) -> Metrics:
    """Return eval/* of held-out groups with k completions each, also per domain if there are several."""
    graded_groups = [(group, values) for group in groups if (values := _values(group.correctness))]
    if not graded_groups:
        return {}
    completions: list[Completion] = [
        completion for group, _ in graded_groups for completion in group.completions
    ]
    accuracy = [fmean(value >= 1 for value in values) for _, values in graded_groups]
    metrics: Metrics = {
        "eval/accuracy": fmean(accuracy),
        "eval/length_mean": fmean(completion.written_tokens for completion in completions),
        "eval/truncated_frac": fmean(completion.is_truncated for completion in completions),
    }
    domains = sorted({group.prompt.domain for group, _ in graded_groups})
    for domain in domains if len(domains) > 1 else ():
        domain_accuracy = [
            share
            for share, (group, _) in zip(accuracy, graded_groups, strict=True)
            if group.prompt.domain == domain
        ]
        metrics[f"eval/accuracy/{domain}"] = fmean(domain_accuracy)
    if k > 1:
        metrics[f"eval/avg_at_{k}"] = metrics["eval/accuracy"]
        solved = [sum(value >= 1 for value in values) for _, values in graded_groups]
        sizes = [len(values) for _, values in graded_groups]
        metrics[f"eval/pass_at_{k}"] = fmean(
            pass_at_k(n, c, k=min(k, n)) for n, c in zip(sizes, solved, strict=True)
        )
    return metrics


def pass_at_k(n: int, correct: int, *, k: int) -> float:
    """Return the probability that k completions, drawn from n, include one of the `correct` ones.

        1 - C(n - c, k) / C(n, k)

    Source: Chen et al., arXiv:2107.03374. Raises ValueError unless 1 <= k <= n.
    """
    if not 1 <= k <= n:
        raise ValueError(f"k must be in 1..{n}, got {k}")
    return 1.0 - math.comb(n - correct, k) / math.comb(n, k)


def _mean_and_std(name: str, values: list[float]) -> Metrics:
    if not values:
        return {}
    return {f"{name}/mean": fmean(values), f"{name}/std": stdev(values) if len(values) > 1 else 0.0}


def _values(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
