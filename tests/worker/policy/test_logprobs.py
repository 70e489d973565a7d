"""Tests of the fused gradient of sampled tokens' log-probabilities, against separate operations."""

import math

import torch

from worker.policy.logprobs import DrawnLogprobs

OF_TOKEN = torch.tensor([0, 0, 1, 2, 2, 2])
TARGETS = torch.tensor([3, 3, 0, 1, 4, 1])


def separate_operations(logits):
    logprobs = logits.log_softmax(dim=-1)
    entropy = -(logprobs.detach().exp() * logprobs.detach()).sum(dim=-1)
    return logprobs[OF_TOKEN, TARGETS], entropy


def test_a_hand_computed_distribution():
    logits = torch.tensor([[math.log(1.0), math.log(3.0)]], requires_grad=True)
    logprobs, entropy = DrawnLogprobs.apply(logits, torch.tensor([0]), torch.tensor([1]))
    assert math.isclose(logprobs.item(), math.log(0.75), rel_tol=1e-6)
    assert math.isclose(entropy.item(), -(0.25 * math.log(0.25) + 0.75 * math.log(0.75)), rel_tol=1e-6)
    logprobs.backward()
    torch.testing.assert_close(logits.grad, torch.tensor([[-0.25, 0.25]]))


def test_values_are_bit_identical_and_gradients_agree():
    logits = torch.randn(3, 500, generator=torch.Generator().manual_seed(0)).mul_(4).requires_grad_()
    weights = torch.randn(len(TARGETS), generator=torch.Generator().manual_seed(1))
    logprobs, entropy = DrawnLogprobs.apply(logits, OF_TOKEN, TARGETS)
    expected, expected_entropy = separate_operations(logits)
    assert torch.equal(logprobs, expected)
    assert torch.equal(entropy, expected_entropy)
    assert not entropy.requires_grad
    (expected_gradient,) = torch.autograd.grad(expected, logits, weights)
    for _ in range(2):  # the terms of a loss are differentiated one after the other
        (gradient,) = torch.autograd.grad(logprobs, logits, weights, retain_graph=True)
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-6, atol=1e-7)


def test_gradients_match_finite_differences():
    logits = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: DrawnLogprobs.apply(x, OF_TOKEN, TARGETS)[0], (logits,))


def test_a_token_without_probability_has_no_gradient_elsewhere():
    """A gradient of 0, as in a row whose advantages are 0, stays 0."""
    logits = torch.randn(3, 5, requires_grad=True)
    logprobs, _ = DrawnLogprobs.apply(logits, OF_TOKEN, TARGETS)
    weights = torch.tensor([1.0, -1.0, 0.0, 0.0, 0.0, 0.0])
    (gradient,) = torch.autograd.grad(logprobs, logits, weights)
    assert torch.equal(gradient, torch.zeros(3, 5))
