"""The signal budget of a step: how much of what was sampled moved the policy, and why the rest did not."""

from collections import Counter

from backend.config.signal_budget import PARTS, Part, budget_metric
from worker.rollout.collector import Collected
from worker.training.update_stats import UpdateStats
from worker.types import Group


def signal_budget(collected: Collected, update_stats: UpdateStats, seconds: float) -> dict[str, float]:
    """signal/*, time/signal/*: the parts of a step's completions, tokens and `seconds`; nothing without any.

    Sampling and scoring are shared by the tokens of the groups that this step sampled, all other time by the
    tokens of those that trained.
    """
    trained_as = {index: place for place, index in enumerate(collected.trained)}
    carried = set(collected.carried)
    completions: Counter[Part] = Counter()
    sampled: Counter[Part] = Counter()
    trained: Counter[Part] = Counter()
    tokens: Counter[Part] = Counter()
    for index, group in enumerate(collected.groups):
        place = trained_as.get(index)
        for position in range(len(group.completions)):
            part, used = _place(group, position, place, update_stats)
            completions[part] += 1
            tokens.update(used)
            if index not in carried:
                sampled.update(used)
            if place is not None:
                trained.update(used)
    if not completions:
        return {}
    before = min(seconds, collected.sample_seconds + collected.score_seconds)
    first, then = _shares(sampled, trained, completions), _shares(trained, sampled, completions)
    found = {}
    for part in PARTS:
        found[budget_metric(part, "completions")] = float(completions[part])
        found[budget_metric(part, "tokens")] = float(tokens[part])
        found[budget_metric(part, "seconds")] = before * first[part] + (seconds - before) * then[part]
    return found


def _place(
    group: Group, position: int, place: int | None, update_stats: UpdateStats
) -> tuple[Part, dict[Part, int]]:
    """The part of a completion, and its tokens in each part; `place`: of its group among those that train."""
    completion = group.completions[position]
    part = _before_updates(group, position, place, update_stats)
    if part is not None:
        return part, {part: len(completion)}
    use = update_stats.token_use[place or 0][position]
    used: dict[Part, int] = {"masked": use.masked, "clipped": use.clipped, "useful": use.useful}
    if use.useful:
        return "useful", used
    return ("clipped" if use.clipped else "masked"), used


def _before_updates(group: Group, position: int, place: int | None, update_stats: UpdateStats) -> Part | None:
    """The part of a completion that no update decides about; None: an update does."""
    if group.completions[position].is_truncated:
        return "truncated"
    reward = group.rewards[position]
    if place is None:
        known = [each for each in group.rewards if each is not None]
        has_signal = len(known) < 2 or any(each != known[0] for each in known)
    else:
        has_signal = update_stats.advantages[place][position] != 0
    if reward is not None and not has_signal:
        graded = group.correctness[position] if group.correctness else None
        return "equal_right" if (reward > 0 if graded is None else graded >= 1) else "equal_wrong"
    return "left_out" if place is None else None


def _shares(*counts: Counter[Part]) -> dict[Part, float]:
    """Each part's share, by the first of these counts that is not all 0."""
    counted = next(each for each in counts if each.total())
    return {part: counted[part] / counted.total() for part in PARTS}
