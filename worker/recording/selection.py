"""Select the groups of a step to store: all groups of a small run, or the informative ones of a large run."""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Literal, Protocol

from backend.config.run import RunConfig
from backend.config.sizes import max_bytes

SMALL_RUN_BYTES = 1_000_000_000
"""Maximum size of rollouts, in bytes, of a run that stores all of them."""

MAX_PROBES = 32
"""Number of held-out prompts, and of prompts per suite, whose completions are always stored."""

Mode = Literal["all", "selected", "none"]


class Scored(Protocol):
    """The properties of a group that the selection uses."""

    @property
    def kind(self) -> str:
        """Kind of the group: `train`, `eval`, or `eval/<suite>`."""

    @property
    def reward_mean(self) -> float | None:
        """Mean reward of the group, or None if nothing could be scored."""

    @property
    def longest(self) -> int:
        """Number of tokens of the longest completion."""


def recording_mode(config: RunConfig) -> Mode:
    """Return the effective `recording.rollouts` mode of this run."""
    mode = config.recording.rollouts
    if mode == "auto":
        return "all" if max_bytes(config) <= SMALL_RUN_BYTES else "selected"
    return mode


def select_groups(
    groups: Sequence[Scored],
    *,
    mode: Mode,
    step: int,
    last_step: int,
    is_alarmed: bool = False,
    seed: int = 0,
) -> list[int]:
    """Return the indices of the groups to store, in order.

    A large run stores all groups of the first step, the last step and steps with an alarm, and the fixed
    probes of each evaluation. From other steps it stores the best, worst, longest and shortest group and a
    random one.
    """
    if mode == "none":
        return []
    train = [n for n, group in enumerate(groups) if group.kind == "train"]
    if mode == "all":
        return list(range(len(groups)))
    selected_indices = set(train) if is_alarmed or step in (1, last_step) else None
    if selected_indices is None:
        selected_indices = _select_telling(groups, train, random.Random(f"{seed}:{step}"))
    return sorted(selected_indices | set(_probes(groups)))


def _probes(groups: Sequence[Scored]) -> list[int]:
    """Return the first held-out groups and the first groups of each suite."""
    count_by_kind: Counter[str] = Counter()
    probes = []
    for n, group in enumerate(groups):
        count_by_kind[group.kind] += 1
        if group.kind != "train" and count_by_kind[group.kind] <= MAX_PROBES:
            probes.append(n)
    return probes


def _select_telling(groups: Sequence[Scored], train: list[int], chance: random.Random) -> set[int]:
    if not train:
        return set()
    lengths = {n: groups[n].longest for n in train}
    rewards = {n: mean for n in train if (mean := groups[n].reward_mean) is not None}
    selected_indices = {
        max(train, key=lengths.__getitem__),
        min(train, key=lengths.__getitem__),
        chance.choice(train),
    }
    if rewards:
        selected_indices |= {max(rewards, key=rewards.__getitem__), min(rewards, key=rewards.__getitem__)}
    return selected_indices
