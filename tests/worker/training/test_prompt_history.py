"""The statistics that a run keeps of its prompts."""

import torch

from worker.objective.smoothing import Visits
from worker.training.prompt_history import PromptHistory


def visits(*rows):
    return Visits(*torch.tensor(rows, dtype=torch.float64).unsqueeze(2).unbind(dim=1))


def test_a_prompt_is_remembered_by_its_id_in_whatever_order():
    history = PromptHistory()
    history.remember(["a", "b"], visits((1, 0.5, 0.25), (2, 0.1, 0.0)))
    count, mean, variance = history.visits(["b", "c", "a"])
    assert count.flatten().tolist() == [2, 0, 1]
    assert mean.flatten().tolist() == [0.1, 0, 0.5]
    assert variance.flatten().tolist() == [0, 0, 0.25]


def test_the_history_comes_back_from_what_a_checkpoint_holds():
    history, restored, empty = PromptHistory(), PromptHistory(), PromptHistory()
    history.remember(["a"], visits((3, 1 / 3, 0.1)))
    restored.restore(history.values(), history.tensors())
    assert torch.cat(restored.visits(["a"])).flatten().tolist() == [3, 1 / 3, 0.1]
    restored.restore(empty.values(), empty.tensors())
    assert torch.cat(restored.visits(["a"])).flatten().tolist() == [0, 0, 0]
