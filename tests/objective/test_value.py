"""Tests of the critic's loss, calculated by hand."""

import pytest
import torch

from worker.objective.value import explained_variance, value_loss

OLD_VALUES = torch.tensor([[0.2, 0.4, 0.5, 0.8]], dtype=torch.float64)
VALUES = torch.tensor([[0.5, 0.45, 0.9, 0.7]], dtype=torch.float64)
RETURNS = torch.tensor([[0.9, 0.6, 0.5, 1.0]], dtype=torch.float64)
ALL_TOKENS = torch.ones(1, 4, dtype=torch.bool)


def test_the_clipped_loss_is_the_larger_of_both_errors():
    loss = value_loss(VALUES, OLD_VALUES, RETURNS, ALL_TOKENS, clip=0.2)
    assert loss.losses.mean().item() == pytest.approx(0.0653, abs=6e-5)
    assert loss.clipped.double().mean() == 0.25


def test_a_clipped_token_has_no_gradient():
    values = VALUES.clone().requires_grad_()
    value_loss(values, OLD_VALUES, RETURNS, ALL_TOKENS, clip=0.2).losses.sum().backward()
    assert values.grad is not None
    assert values.grad[0].tolist() == pytest.approx([0, -0.15, 0.4, -0.3])


def test_masked_tokens_have_neither_loss_nor_gradient():
    values = torch.tensor([[0.5, float("nan")]], requires_grad=True)
    mask = torch.tensor([[True, False]])
    loss = value_loss(values, values.detach(), torch.tensor([[1.0, float("inf")]]), mask, clip=0.2)
    loss.losses.sum().backward()
    assert loss.losses.tolist() == [[0.125, 0.0]]
    assert values.grad.tolist() == [[-0.5, 0.0]]


def test_explained_variance_matches_a_calculation_by_hand():
    assert explained_variance(OLD_VALUES, RETURNS, ALL_TOKENS) == pytest.approx(-0.5735, abs=6e-5)
    assert explained_variance(RETURNS, RETURNS, ALL_TOKENS) == 1.0
    assert explained_variance(torch.zeros(1, 4), RETURNS, ALL_TOKENS) == pytest.approx(0)
