"""Tests of the reward of episodes: the weighted reward of the environment, and when an episode is right."""

from contextlib import closing

import numpy as np

from backend.config.rewards import EnvironmentReward
from worker.prompt import Prompt
from worker.rewards.score import Scorer
from worker.types import Completion, EpisodeResult

PROMPT = Prompt("episodes/train/0/0", "Guess.", "", "episodes", "environment")


def played(episode):
    return Completion(np.zeros(1, np.int64), "7", ("7",), "stop", np.zeros(1, np.float32), episode=episode)


def test_an_episode_has_the_reward_of_its_environment_and_a_lost_one_has_none():
    episodes = [
        EpisodeResult(0.5, is_done=True),
        EpisodeResult(2.0, is_done=False),
        EpisodeResult(None, is_done=False),
    ]
    with closing(Scorer([EnvironmentReward(weight=2.0, success=2.0)], processes=1)) as scorer:
        [group] = scorer.score([PROMPT], [[*map(played, episodes), played(None)]])
    assert group.terms == {"environment": (0.5, 2.0, None, None)}
    assert group.rewards == (1.0, 4.0, None, None)
    assert group.correctness == (0.0, 1.0, None, None)


def test_the_reward_can_require_a_solved_episode():
    episodes = [EpisodeResult(0.5, is_done=True), EpisodeResult(1.0, is_done=True)]
    with closing(Scorer([EnvironmentReward(only_when_correct=True)], processes=1)) as scorer:
        [group] = scorer.score([PROMPT], [list(map(played, episodes))])
    assert group.rewards == (0.0, 1.0)
