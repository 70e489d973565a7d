"""The signal budget of a step: the share of samples that changed the policy, and why the others did not."""

from collections import Counter

from backend.config.signal_budget import PARTS, Part, budget_metric
from worker.rollout.collector import CollectedGroups
from worker.training.update_stats import UpdateStats
from worker.types import Group


def signal_budget(collected: CollectedGroups, update_stats: UpdateStats, seconds: float) -> dict[str, float]:
    """Return signal/* and time/signal/*: completions, tokens and `seconds` by category.

    The time of sampling and scoring is divided among the tokens of the groups that this step sampled. All
    other time is divided among the tokens of the groups that trained. The result is empty without
    completions.
    """
    position_by_index = {index: position for position, index in enumerate(collected.trained)}
    carried_indices = set(collected.carried)
    completions: Counter[Part] = Counter()
    sampled: Counter[Part] = Counter()
    trained: Counter[Part] = Counter()
    tokens: Counter[Part] = Counter()
    for index, group in enumerate(collected.groups):
        trained_position = position_by_index.get(index)
        for position in range(len(group.completions)):
            category, category_tokens = _categorise(group, position, trained_position, update_stats)
            completions[category] += 1
            tokens.update(category_tokens)
            if index not in carried_indices:
                sampled.update(category_tokens)
            if trained_position is not None:
                trained.update(category_tokens)
    if not completions:
        return {}
    sampling_seconds = min(seconds, collected.sample_seconds + collected.score_seconds)
    sampling_shares, training_shares = (
        _shares(sampled, trained, completions),
        _shares(trained, sampled, completions),
    )
    budget = {}
    for category in PARTS:
        budget[budget_metric(category, "completions")] = float(completions[category])
        budget[budget_metric(category, "tokens")] = float(tokens[category])
        budget[budget_metric(category, "seconds")] = (
            sampling_seconds * sampling_shares[category]
            + (seconds - sampling_seconds) * training_shares[category]
        )
    return budget


def _categorise(
    group: Group, position: int, trained_position: int | None, update_stats: UpdateStats
) -> tuple[Part, dict[Part, int]]:
    """Return the category of a completion, and the number of its tokens in each category.

    `trained_position` is the position of its group among the groups that train.
    """
    completion = group.completions[position]
    category = _before_updates(group, position, trained_position, update_stats)
    if category is not None:
        return category, {category: len(completion)}
    use = update_stats.token_use[trained_position or 0][position]
    category_tokens: dict[Part, int] = {"masked": use.masked, "clipped": use.clipped, "useful": use.useful}
    if use.useful:
        return "useful", category_tokens
    return ("clipped" if use.clipped else "masked"), category_tokens


def _before_updates(
    group: Group, position: int, trained_position: int | None, update_stats: UpdateStats
) -> Part | None:
    """Return the category of a completion that never reaches an update, or None if it reaches one."""
    if group.completions[position].is_truncated:
        return "truncated"
    reward = group.rewards[position]
    if trained_position is None:
        group_rewards = [group_reward for group_reward in group.rewards if group_reward is not None]
        has_signal = len(group_rewards) < 2 or any(
            group_reward != group_rewards[0] for group_reward in group_rewards
        )
    else:
        has_signal = update_stats.advantages[trained_position][position] != 0
    if reward is not None and not has_signal:
        grade = group.correctness[position] if group.correctness else None
        return "equal_right" if (reward > 0 if grade is None else grade >= 1) else "equal_wrong"
    return "left_out" if trained_position is None else None


def _shares(*counts: Counter[Part]) -> dict[Part, float]:
    """Return the share of each category in the first of these counters that is not empty."""
    first_counts = next(counter for counter in counts if counter.total())
    return {category: first_counts[category] / first_counts.total() for category in PARTS}
