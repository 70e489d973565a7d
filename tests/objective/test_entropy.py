"""Tests of the entropy bonus, fixed and adaptive."""

import math

import pytest
import torch

from backend.config import knobs
from backend.config.objective import Objective
from tests.objective import fixture_f as f
from worker.objective.entropy import next_coefficient, used_coefficient
from worker.objective.policy_loss import denominators, policy_loss

ENTROPY = f.pad_rows([[1.0, 2.0], [1.0, 1.0, 1.0], [3.0], [2.0, 2.0, 2.0, 2.0]])


def bonus(objective, **changes):
    """Return the loss with advantages of 0 and the gradient of the entropies."""
    batch = f.batch(objective, advantages=torch.zeros(4), **changes)
    entropy = ENTROPY.clone().requires_grad_()
    weights = denominators(batch.mask, batch.group_index, objective, max_new_tokens=4)
    result = policy_loss(f.NEW_LOGPROBS, batch, objective, weights, entropy=entropy)
    (gradient,) = torch.autograd.grad(result.loss, entropy)
    return result, gradient[f.MASK]


def test_the_entropy_of_published_logits():
    logits = torch.tensor([0.6667, -2, 1.3333, 0, -0.6667, 2, -1.3333]).double()
    logprobs = logits.log_softmax(dim=0)
    assert -(logprobs.exp() * logprobs).sum().item() == pytest.approx(1.3700, abs=6e-5)
    assert math.log(7) == pytest.approx(1.9459, abs=6e-5)


def test_the_bonus_is_reduced_like_the_policy_loss():
    knob = knobs.EntropyBonus(coef=0.1)
    by_token, gradient = bonus(Objective(entropy=knob, aggregation=knobs.TokenMean()))
    assert by_token.loss.item() == pytest.approx(-0.1 * 17 / 10)
    assert gradient.tolist() == pytest.approx([-0.01] * 10)
    by_completion, gradient = bonus(Objective(entropy=knob))
    assert by_completion.loss.item() == pytest.approx(-0.1 * (1.5 + 1 + 3 + 2) / 4)
    assert gradient[0].item() == pytest.approx(-0.1 / 8)


def test_the_weight_in_use_is_recorded():
    metrics = bonus(Objective(entropy=knobs.EntropyBonus(coef=0.1)))[0].metrics.values()
    assert metrics["entropy/coef"] == pytest.approx(0.1)


def test_the_weight_rises_below_the_target_and_falls_above_it():
    assert next_coefficient(0.010, 1.3700, target=1.5, step=0.005) == pytest.approx(0.015)
    assert next_coefficient(0.010, 1.3700, target=1.2, step=0.005) == pytest.approx(0.005)
    assert next_coefficient(0.001, 1.3700, target=1.2, step=0.005) == 0


def test_above_its_target_there_is_no_bonus():
    assert used_coefficient(0.01, 1.21, target=1.2) == 0
    assert used_coefficient(0.01, 1.2, target=1.2) == 0.01


def test_an_adaptive_bonus_uses_the_weight_of_its_step():
    objective = Objective(entropy=knobs.AdaptiveEntropy(), aggregation=knobs.TokenMean())
    result, _ = bonus(objective, entropy_coef=torch.full((4,), 0.1, dtype=torch.float64))
    assert result.loss.item() == pytest.approx(-0.1 * 17 / 10)
    with pytest.raises(ValueError, match="needs the entropy coefficient"):
        bonus(objective)
