"""Statistics of the rewards of earlier visits to each prompt, by the prompt's stable id."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from worker.objective.smoothing import Visits

Entry = tuple[float, float, float]
"""Number of visits, and mean and variance of a prompt's rewards."""

UNSEEN: Entry = (0.0, 0.0, 0.0)


class PromptHistory:
    """Running statistics of every prompt a run has trained on."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def visits(self, prompts: Sequence[str]) -> Visits:
        """Return the earlier visits of P prompts, by id."""
        columns = torch.tensor([self._entries.get(id_, UNSEEN) for id_ in prompts], dtype=torch.float64)
        return Visits(*columns.unsqueeze(2).unbind(dim=1))

    def remember(self, prompts: Sequence[str], visits: Visits) -> None:
        """Store the visits after a step."""
        numbers = torch.cat(visits, dim=1).tolist()
        self._entries.update(zip(prompts, map(tuple, numbers), strict=True))

    def values(self) -> dict[str, Any]:
        """See Stateful."""
        return {"prompts": list(self._entries)}

    def tensors(self) -> dict[str, Tensor]:
        """See Stateful."""
        return {"visits": torch.tensor(list(self._entries.values()), dtype=torch.float64).view(-1, 3)}

    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """See Stateful."""
        rows = tensors["visits"].tolist()
        self._entries = dict(zip(values["prompts"], map(tuple, rows), strict=True))


def group_repeats(prompts: Sequence[str]) -> list[list[int]]:
    """Return the positions of prompts that appear for the first time, for the second time, and so on.

    Example: repeats(["a", "b", "a"]) -> [[0, 1], [2]]
    """
    counts: Counter[str] = Counter()
    rounds: list[list[int]] = []
    for position, prompt in enumerate(prompts):
        if counts[prompt] == len(rounds):
            rounds.append([])
        rounds[counts[prompt]].append(position)
        counts[prompt] += 1
    return rounds
