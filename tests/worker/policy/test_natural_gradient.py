"""Tests of the natural-gradient step on softmax policies with three actions, calculated by hand."""

import pytest
import torch

from backend.config.sections import TrustRegion
from worker.policy.natural_gradient import conjugate_gradient, fisher_product, natural_step


class Softmax:
    """Three actions sampled from the old policy, with one advantage each."""

    def __init__(self, old_probabilities, advantages):
        self.old_probabilities = torch.tensor(old_probabilities, dtype=torch.float64)
        self.advantages = torch.tensor(advantages, dtype=torch.float64)
        self.theta = self.old_probabilities.log().clone().requires_grad_()
        self.start = self.theta.detach().clone()

    @property
    def policy(self):
        return self.theta.softmax(dim=0)

    def surrogate(self):
        """Return the mean of ratio times advantage over the old policy's actions, in two terms."""
        yield (self.policy * self.advantages)[:1].sum()
        yield (self.policy * self.advantages)[1:].sum()

    def divergence(self):
        yield (self.old_probabilities * (self.old_probabilities.log() - self.theta.log_softmax(dim=0))).sum()

    def step(self, **trust):
        return natural_step([self.theta], self.surrogate, self.divergence, TrustRegion(**trust))

    def fisher(self, *, damping, lean=False):
        return fisher_product(self.divergence, [self.theta], damping=damping, lean=lean)


def close(values):
    return pytest.approx(values, abs=6e-5)


UNIFORM = [1 / 3] * 3


def test_without_damping_the_step_reaches_the_edge_of_the_region():
    toy = Softmax(UNIFORM, [1.0, 0.0, -1.0])
    gradient = torch.tensor([1 / 3, 0.0, -1 / 3], dtype=torch.float64)
    direction = conjugate_gradient(toy.fisher(damping=0.0), gradient, iterations=10)
    assert direction.tolist() == close([1, 0, -1])
    assert float(direction @ toy.fisher(damping=0.0)(direction)) == close(0.6667)
    step = toy.step(delta=0.01, damping=0)
    assert (toy.theta - toy.start).tolist() == close([0.1732, 0, -0.1732])
    assert toy.policy.tolist() == close([0.3924, 0.3300, 0.2775])
    assert step.kl == close(0.009975)
    assert step.improvement == close(0.1149)
    assert step.grad_norm == close(0.4714)
    assert (step.backtracks, step.is_failed) == (0, False)


def test_damping_shortens_the_step():
    toy = Softmax([0.5, 0.3, 0.2], [-0.2, 0.1, 0.35])
    gradient = torch.tensor([-0.1, 0.03, 0.07], dtype=torch.float64)
    direction = conjugate_gradient(toy.fisher(damping=0.1), gradient, iterations=2)
    assert direction.tolist() == close([-0.2191, 0.0278, 0.1914])
    step = toy.step(delta=0.01, damping=0.1)
    assert (toy.theta - toy.start).tolist() == close([-0.1630, 0.0207, 0.1423])
    assert toy.policy.tolist() == close([0.4417, 0.3185, 0.2398])
    assert step.kl == close(0.0077)
    assert step.improvement == close(0.0274)
    assert step.backtracks == 0


def test_a_step_beyond_the_region_is_shortened_until_it_is_inside():
    """The quadratic approximation of a wide region is poor: the full step's KL exceeds delta."""
    toy = Softmax([0.05, 0.9, 0.05], [1.0, 0.0, 0.0])
    step = toy.step(delta=0.5, damping=0)
    assert step.backtracks > 0
    assert 0 < step.kl <= 0.5
    assert step.improvement > 0


@pytest.mark.parametrize("advantage", [0.0, float("nan")])
def test_without_a_direction_nothing_changes(advantage):
    toy = Softmax(UNIFORM, [advantage] * 3)
    assert toy.step().is_failed
    assert torch.equal(toy.theta.detach(), toy.start)
