"""Tests of estimates of the distance from the reference, on fixture F and in closed form."""

import math

import pytest
import torch

from backend.config import knobs
from backend.config.objective import Objective
from tests.objective import fixture_f as f
from worker.objective import kl
from worker.objective.estimation import estimate_advantages
from worker.objective.policy_loss import kl_reward_penalty

X = torch.tensor([[0.4, -0.1, -0.3, 0.3, 0.25, -0.2, 0.4, -0.1, -0.35, -0.1]], dtype=torch.float64)


def kl_part(knob):
    """Return only the KL term, since advantages are 0."""
    return f.run(Objective(kl=knob, aggregation=knobs.TokenMean()), advantages=torch.zeros(4))


def test_the_estimators_token_by_token():
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
def test_the_mean_of_each_estimator_over_the_ten_tokens(knob, mean):
    assert kl_part(knob)[0].loss.item() == pytest.approx(mean, abs=6e-5)


def test_the_sequence_means_of_k3_and_of_r_k3():
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
def test_the_gradient_of_the_first_three_tokens(knob, gradient):
    _, minus_gradient = kl_part(knob)  # ten tokens: the mean of ten times the estimate is its sum
    assert (-minus_gradient[:3]).tolist() == pytest.approx(gradient, abs=6e-5)


def test_the_expectations_over_a_known_distribution():
    p, q = torch.tensor([[0.5, 0.3, 0.2]]).double(), torch.tensor([[0.4, 0.4, 0.2]]).double()
    x = kl.log_ratio_to_reference(p.log(), q.log())
    assert (p * kl.k1(x)).sum().item() == pytest.approx(0.0253, abs=6e-5)
    assert (p * kl.k3(x)).sum().item() == pytest.approx(0.0253, abs=6e-5)
    assert (p * kl.k2(x)).sum().item() == pytest.approx(0.0249, abs=6e-5)


def test_k3_has_the_largest_gradient_if_the_policy_is_furthest_away():
    x = torch.tensor([[-1.0, -2.6, -5.0, -19.0, -20.0, -30.0]], dtype=torch.float64, requires_grad=True)
    kl.k3(x).sum().backward()
    expected = [
        1 - math.exp(1),
        1 - math.exp(2.6),
        1 - math.exp(5),
        1 - math.exp(19),
        *[1 - math.exp(20)] * 2,
    ]
    assert x.grad.tolist()[0] == pytest.approx(expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_k3_and_its_gradient_are_finite_for_any_distance(dtype):
    x = torch.tensor([[-900.0, -88.0, -20.0, 0.0, 20.0, 900.0]], dtype=dtype, requires_grad=True)
    estimate = kl.k3(x)
    estimate.sum().backward()
    assert torch.isfinite(estimate).all()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()
    assert estimate[0, 3:].tolist() == pytest.approx([0, 19, 899])


def test_the_tangent_takes_over_without_a_step():
    value_below, value_above = (
        kl.k3(torch.tensor([[log_ratio]], dtype=torch.float64)).item()
        for log_ratio in (-20 - 1e-9, -20 + 1e-9)
    )
    assert value_below == pytest.approx(value_above, rel=1e-8)
    assert value_above == pytest.approx(math.exp(20) - 21, rel=1e-8)


def test_a_limit_ends_the_gradient_as_in_earlier_versions():
    x = torch.tensor([[-900.0, -2.7, -2.5, 0.5, 900.0]], dtype=torch.float64, requires_grad=True)
    estimate = kl.k3(x, limit=10.0)
    estimate.sum().backward()
    assert estimate.tolist()[0] == pytest.approx([10, 10, math.exp(2.5) - 3.5, math.exp(-0.5) - 0.5, 10])
    assert x.grad.tolist()[0] == pytest.approx([0, 0, 1 - math.exp(2.5), 1 - math.exp(-0.5), 0])


def test_the_limit_of_the_config_applies_to_loss_metrics_and_tokens():
    for limit, mean in (("none", 0.0366), (0.05, 0.03065)):
        result, _ = kl_part(knobs.KlK3(coef=1, k3_limit=limit))
        assert result.loss.item() == pytest.approx(mean, abs=6e-5)
        assert result.metrics.values()["kl/k3"] == pytest.approx(mean, abs=6e-5)
        assert result.per_token["kl"].max().item() == pytest.approx(
            min(0.0703, knobs.KlK3(k3_limit=limit).largest_k3), abs=6e-5
        )


def test_kl_in_the_reward_is_subtracted_before_leave_one_out():
    objective = Objective(advantage=knobs.LeaveOneOut(), kl=knobs.KlK1(coef=0.03, place="reward"))
    penalty = kl_reward_penalty(f.batch(objective), objective).sum(dim=1)
    assert (penalty / 0.03).tolist() == pytest.approx([-0.1, 0, 0.2, -0.1])
    rewards = torch.tensor(f.REWARDS).double() - penalty
    assert rewards.tolist()[0] == pytest.approx([1.0030, 1.0000, -0.0060, 0.0030])
    is_scored = torch.ones_like(rewards, dtype=torch.bool)
    advantages = estimate_advantages(rewards, is_scored, knobs.LeaveOneOut()).advantages.tolist()[0]
    assert advantages == pytest.approx([0.6707, 0.6667, -0.6747, -0.6627], abs=6e-5)


def test_sequence_sums_are_averaged_over_completions():
    result, _ = f.run(Objective(kl=knobs.KlK1(coef=1, aggregation="seq_sum")), advantages=torch.zeros(4))
    assert result.loss.item() == pytest.approx(X.sum().item() / 4)


TO_OLD = Objective(kl=knobs.KlK2(coef=10, to="old"), aggregation=knobs.TokenMean())


def test_the_old_policy_can_replace_the_reference():
    result, minus_gradient = f.run(TO_OLD, advantages=torch.zeros(4), reference_logprobs=None)
    drift = [token_drift for row in f.DRIFT for token_drift in row]
    assert (-minus_gradient).tolist() == pytest.approx(drift)
    assert result.metrics.values()["kl/k1"] == pytest.approx(sum(drift) / 10)


def test_each_completion_has_the_coefficient_of_its_domain():
    """y1 and y2 are in the domain without a KL term, so only k3 of y3 and y4 remains."""
    knob = knobs.KlK3(coef={"code": 0.0, "math": 1.0})
    result, _ = f.run(
        Objective(kl=knob, aggregation=knobs.TokenMean()),
        advantages=torch.zeros(4),
        kl_coef=torch.tensor([0.0, 0.0, 1.0, 1.0]),
        domains=("code", "math"),
        domain_index=torch.tensor([0, 0, 1, 1]),
    )
    metrics = result.metrics.values()
    assert result.loss.item() == pytest.approx((0.0214 + 0.0703 + 0.0052 + 0.0691 + 0.0052) / 10, abs=6e-5)
    assert metrics["kl/coef"] == 0.5
    assert metrics["kl/code"] == pytest.approx((0.0703 + 0.0052 + 0.0499 + 0.0408 + 0.0288) / 5, abs=6e-5)
    assert metrics["kl/math"] == pytest.approx((0.0214 + 0.0703 + 0.0052 + 0.0691 + 0.0052) / 5, abs=6e-5)


def test_a_coefficient_per_completion_also_applies_in_the_reward():
    objective = Objective(advantage=knobs.LeaveOneOut(), kl=knobs.KlK1(coef=0.03, place="reward"))
    coef = torch.tensor([1.0, 1.0, 0.5, 0.0])
    penalty = kl_reward_penalty(f.batch(objective, kl_coef=coef), objective).reshape(4, -1).sum(dim=1)
    assert penalty.tolist() == pytest.approx([-0.1, 0, 0.1, 0])


@pytest.mark.parametrize(("measured", "following"), [(0.02, 0.2), (0.006, 0.05), (0.012, 0.1)])
def test_dual_descent_doubles_and_halves(measured, following):
    assert kl.dual_descent(0.1, measured, target=0.01) == pytest.approx(following)


def test_a_horizon_controller_moves_by_at_most_a_fifth_over_its_horizon():
    next_coefficient = kl.horizon_control(0.2, 8.0, target=6.0, completions=256, horizon=10_000)
    assert next_coefficient == pytest.approx(0.2010, abs=6e-5)
    assert kl.horizon_control(1.0, 0.0, target=6.0, completions=10_000, horizon=10_000) == pytest.approx(0.8)
