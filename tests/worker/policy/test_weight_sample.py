"""Size of an update by a sample of the weights."""

import pytest
import torch
from torch import nn

from worker.policy import weight_sample
from worker.policy.weight_sample import WeightSample


def test_a_small_model_is_taken_whole():
    model = nn.Linear(2, 2)
    sample = WeightSample(model)
    assert sample.moved() == 0
    with torch.no_grad():
        model.weight.add_(2)
        model.bias.add_(1)
    assert sample.moved() == pytest.approx((4 * 2.0**2 + 2 * 1.0**2) ** 0.5)


def test_of_a_large_model_some_weights_speak_for_all(monkeypatch):
    monkeypatch.setattr(weight_sample, "SAMPLED", 500)
    model = nn.Linear(100, 100, bias=False)
    sample = WeightSample(model)
    assert len(sample.before) == 500
    change = torch.randn(100, 100, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        model.weight.add_(change)
    assert sample.moved() == pytest.approx(float(change.norm()), rel=0.1)


def test_frozen_weights_do_not_move():
    model = nn.Linear(2, 2).requires_grad_(False)
    sample = WeightSample(model)
    with torch.no_grad():
        model.weight.add_(1)
    assert sample.moved() == 0
