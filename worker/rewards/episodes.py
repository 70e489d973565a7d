"""Rewards of episodes, computed by the run's environment."""

from collections.abc import Sequence

from backend.config.rewards import EnvironmentReward, RewardTerm
from worker.rewards.correctness import Grade
from worker.types import Completion


def episode_rewards(completions: Sequence[Sequence[Completion]]) -> list[float | None]:
    """Return the environment's reward of each completion, or None if it failed or gave none."""
    episodes = [completion.episode for row in completions for completion in row]
    return [None if episode is None else episode.reward for episode in episodes]


def episode_grades(
    terms: Sequence[RewardTerm], grades: Sequence[Grade], completions: Sequence[Sequence[Completion]]
) -> list[Grade]:
    """Return the grades; if the environment gives rewards, completions with at least `success` are
    correct.
    """
    term = next((term for term in terms if isinstance(term, EnvironmentReward)), None)
    if term is None:
        return list(grades)
    rewards = episode_rewards(completions)
    return [Grade(None if reward is None else float(reward >= term.success)) for reward in rewards]
