"""Tests of weight decay, of tensors with two or more dimensions or of all."""

import pytest
import torch
from torch import nn

from backend.config.sections import OptimizerConfig
from worker.policy.optimizer import PolicyOptimizer


@pytest.mark.parametrize(("decayed", "bias"), [("matrices", 1.0), ("all", 0.99)])
def test_biases_decay_only_if_everything_does(decayed, bias):
    layer = nn.Linear(1, 1)
    nn.init.ones_(layer.weight)
    nn.init.ones_(layer.bias)
    config = OptimizerConfig(lr=0.1, weight_decay=0.1, decayed=decayed)
    optimizer = PolicyOptimizer(layer, config, steps=1)
    layer.weight.grad, layer.bias.grad = torch.zeros(1, 1), torch.zeros(1)
    optimizer.step(1)
    assert layer.weight.item() == pytest.approx(0.99)
    assert layer.bias.item() == pytest.approx(bias)
