"""Look up entries of reasoning_gym tasks by position. This module runs in the checking process without
torch.
"""

from collections.abc import Mapping
from copy import deepcopy
from functools import lru_cache
from json import dumps, loads
from typing import Any

from worker.rewards.reasoning_gym.satisfiability import stand_in_for_pycosat

CHUNK = 64
"""Number of entries per dataset object, because a few tasks compute all entries at once."""


def entry_at(task: str, config: Mapping[str, Any], seed: int, offset: int) -> dict[str, Any]:
    """Return question, answer and metadata at an offset below CHUNK in the task's dataset with that seed."""
    return _entry(task, dumps(config, sort_keys=True), seed, offset)


def score_at(task: str, config: Mapping[str, Any], seed: int, offset: int, *, answer: str) -> float:
    """Return the score of an answer by the task's scorer, clamped to 0..1.

    Tasks whose checker would evaluate the answer use a replacement (see CHECKERS).
    """
    from worker.rewards.reasoning_gym.checkers import CHECKERS

    dataset = _dataset(task, dumps(config, sort_keys=True), seed)
    entry = entry_at(task, config, seed, offset)
    if checker := CHECKERS.get(task):
        score = checker(dataset, answer, entry)
    else:
        score = dataset.score_answer(answer, deepcopy(entry))  # some checkers modify it
    return min(1.0, max(0.0, float(score)))


def library() -> Any:
    """Import reasoning_gym, which takes more than a second and is never needed in the trainer itself."""
    stand_in_for_pycosat()
    import reasoning_gym

    return reasoning_gym


@lru_cache(maxsize=256)
def _entry(task: str, config: str, seed: int, offset: int) -> dict[str, Any]:
    entry: dict[str, Any] = _dataset(task, config, seed)[offset]
    return entry


@lru_cache(maxsize=16)
def _dataset(task: str, config: str, seed: int) -> Any:
    return library().create_dataset(task, **loads(config), seed=seed, size=CHUNK)
