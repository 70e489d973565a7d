"""Estimates of the distance from the reference, on fixture F and in closed form."""

import pytest
import torch

from backend.config import knobs
from backend.config.objective import Objective
from tests.objective import fixture_f as f
from worker.objective import kl
from worker.objective.policy_loss import estimate_advantages, kl_reward_penalty

X = torch.tensor([[0.4, -0.1, -0.3, 0.3, 0.25, -0.2, 0.4, -0.1, -0.35, -0.1]], dtype=torch.float64)


def kl_part(knob):
    """The KL term alone: advantages are 0."""
    return f.run(Objective(kl=knob, aggregation=knobs.TokenMean()), advantages=torch.zeros(4))


def test_estimators_token_by_token():
    result, _ = kl_part(knobs.KlK3(coef=1))
    expected = [0.0703, 0.0052, 0.0499, 0.0408, 0.0288, 0.0214, 0.0703, 0.0052, 0.0691, 0.0052]
    assert result.per_token["kl"][f.MASK].tolist() == pytest.approx(expected, abs=6e-5)
    metrics = result.metrics.values()
    assert metrics["kl/k1"] == pytest.approx(0.0200, abs=6e-5)
    assert metrics["kl/k2"] == pytest.approx(0.03775, abs=6e-6)
    assert metrics["kl/k3"] == pytest.approx(0.0366, abs=6e-5)


@pytest.mark.parametrize(
    ("knob", "mean"),
    [
        (knobs.KlK1(coef=1), 0.0200),
        (knobs.KlK2(coef=1), 0.0378),
        (knobs.KlK3(coef=1), 0.0366),
        (knobs.KlRatioK3(coef=1), 0.0408),
        (knobs.KlRatioK1(coef=1), 0.0907),
    ],
)
def test_mean_of_each_estimator_over_the_ten_tokens(knob, mean):
    assert kl_part(knob)[0].loss.item() == pytest.approx(mean, abs=6e-5)


def test_sequence_means_of_k3_and_of_r_k3():
    for knob, mean in ((knobs.KlK3(coef=1), 0.0341), (knobs.KlRatioK3(coef=1), 0.0373)):
        result, _ = f.run(Objective(kl=knob), advantages=torch.zeros(4))
        assert result.loss.item() == pytest.approx(mean, abs=6e-5)


@pytest.mark.parametrize(
    ("knob", "gradient"),
    [
        (knobs.KlK1(coef=10), [1, 1, 1]),
        (knobs.KlK2(coef=10), [0.4, -0.1, -0.3]),
        (knobs.KlK3(coef=10), [0.3297, -0.1052, -0.3499]),
        (knobs.KlRatioK3(coef=10), [0.5399, -0.1105, -0.2222]),
        (knobs.KlRatioK1(coef=10), [1.3499 * 1.4, 1.1052 * 0.9, 0.7408 * 0.7]),
    ],
)
def test_gradient_of_the_first_three_tokens(knob, gradient):
    _, minus_gradient = kl_part(knob)  # ten tokens: a mean of ten times the estimate is its sum
    assert (-minus_gradient[:3]).tolist() == pytest.approx(gradient, abs=6e-5)


def test_expectations_over_a_known_distribution():
    p, q = torch.tensor([[0.5, 0.3, 0.2]]).double(), torch.tensor([[0.4, 0.4, 0.2]]).double()
    x = kl.log_ratio_to_reference(p.log(), q.log())
    assert (p * kl.k1(x)).sum().item() == pytest.approx(0.0253, abs=6e-5)
    assert (p * kl.k3(x)).sum().item() == pytest.approx(0.0253, abs=6e-5)
    assert (p * kl.k2(x)).sum().item() == pytest.approx(0.0249, abs=6e-5)


def test_k3_is_capped_and_finite_far_from_the_reference():
    x = kl.log_ratio_to_reference(torch.tensor([[-900.0, 0.0]]), torch.tensor([[0.0, -900.0]]))
    assert kl.k3(x).tolist() == [[10, 10]]


def test_kl_in_the_reward_comes_off_before_leave_one_out():
    objective = Objective(advantage=knobs.LeaveOneOut(), kl=knobs.KlK1(coef=0.03, place="reward"))
    penalty = kl_reward_penalty(f.batch(objective), objective)
    assert (penalty / 0.03).tolist() == pytest.approx([-0.1, 0, 0.2, -0.1])
    rewards = torch.tensor(f.REWARDS).double() - penalty
    assert rewards.tolist()[0] == pytest.approx([1.0030, 1.0000, -0.0060, 0.0030])
    scored = torch.ones_like(rewards, dtype=torch.bool)
    found = estimate_advantages(rewards, scored, objective.advantage).advantages.tolist()[0]
    assert found == pytest.approx([0.6707, 0.6667, -0.6747, -0.6627], abs=6e-5)


def test_kl_in_the_reward_leaves_the_loss_alone():
    in_reward = f.run(Objective(kl=knobs.KlK1(coef=0.03, place="reward")))[0]
    assert in_reward.loss.item() == f.run(Objective())[0].loss.item()
    assert in_reward.metrics.values()["kl/coef"] == pytest.approx(0.03)


def test_sequence_sums_are_averaged_over_completions():
    result, _ = f.run(Objective(kl=knobs.KlK1(coef=1, aggregation="seq_sum")), advantages=torch.zeros(4))
    assert result.loss.item() == pytest.approx(X.sum().item() / 4)
