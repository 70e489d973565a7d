"""Tests of token advantages from a critic, calculated by hand."""

import pytest
import torch

from worker.objective.gae import generalized_advantages, last_token_rewards, length_adaptive_lambda

REWARDS = torch.tensor([[0.0, 0.0, 0.0, 1.0]], dtype=torch.float64)
VALUES = torch.tensor([[0.2, 0.4, 0.5, 0.8]], dtype=torch.float64)
ALL_TOKENS = torch.ones(1, 4, dtype=torch.bool)


def row(values):
    return [pytest.approx(expected, abs=6e-5) for expected in values]


@pytest.mark.parametrize(
    ("gamma", "lambda_", "advantages"),
    [
        (1.0, 0.95, [0.7372, 0.5655, 0.4900, 0.2000]),
        (1.0, 1.0, [0.8, 0.6, 0.5, 0.2]),
        (1.0, 0.0, [0.2, 0.1, 0.3, 0.2]),
        (0.99, 0.95, [0.7100, 0.5465, 0.4801, 0.2000]),
    ],
)
def test_advantages_match_the_table(gamma, lambda_, advantages):
    estimates = generalized_advantages(REWARDS, VALUES, ALL_TOKENS, gamma=gamma, lambda_=lambda_)
    assert estimates[0].tolist() == row(advantages)


@pytest.mark.parametrize(("lambda_", "returns"), [(0.95, [0.9372, 0.9655, 0.9900, 1.0]), (1.0, [1, 1, 1, 1])])
def test_returns_are_advantages_plus_values(lambda_, returns):
    estimates = generalized_advantages(REWARDS, VALUES, ALL_TOKENS, lambda_=lambda_) + VALUES
    assert estimates[0].tolist() == row(returns)


def test_lambda_adapts_to_the_length():
    lengths = torch.tensor([0, 10, 20, 100, 1000, 10000])
    assert length_adaptive_lambda(lengths, alpha=0.05).tolist() == row([0, 0, 0, 0.8, 0.98, 0.998])


def test_vapo_uses_different_lambdas_for_policy_and_critic():
    lambda_ = length_adaptive_lambda(torch.tensor([4]), alpha=0.5)
    assert lambda_.tolist() == [0.5]
    estimates = generalized_advantages(REWARDS, VALUES, ALL_TOKENS, lambda_=lambda_)
    assert estimates[0].tolist() == row([0.35, 0.30, 0.40, 0.20])


def test_masked_tokens_pass_on_later_values():
    """A tool's output between the second and third token changes nothing for the four that count."""
    nan = float("nan")
    rewards = torch.tensor([[0.0, 0.0, nan, nan, 0.0, 1.0, nan]], dtype=torch.float64)
    values = torch.tensor([[0.2, 0.4, nan, nan, 0.5, 0.8, nan]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False, False, True, True, False]])
    estimates = generalized_advantages(rewards, values, mask, gamma=0.99, lambda_=0.95)
    assert estimates[0].tolist() == row([0.7100, 0.5465, 0, 0, 0.4801, 0.2000, 0])


def test_each_completion_may_have_its_own_lambda():
    doubled_rows = [row_of_table.expand(2, 4) for row_of_table in (REWARDS, VALUES, ALL_TOKENS)]
    estimates = generalized_advantages(*doubled_rows, lambda_=torch.tensor([1.0, 0.0], dtype=torch.float64))
    assert estimates.tolist() == [row([0.8, 0.6, 0.5, 0.2]), row([0.2, 0.1, 0.3, 0.2])]


@pytest.mark.parametrize(
    ("n_step", "advantages"),
    [(1, [0.2, 0.1, 0.3, 0.2]), (2, [0.3, 0.4, 0.5, 0.2]), (4, [0.8, 0.6, 0.5, 0.2])],
)
def test_n_step_returns_look_n_steps_ahead(n_step, advantages):
    """With lambda 1, it is n rewards plus the critic's value after them, minus the value here."""
    estimates = generalized_advantages(REWARDS, VALUES, ALL_TOKENS, lambda_=1.0, n_step=n_step)
    assert estimates[0].tolist() == row(advantages)


def test_n_steps_skip_masked_tokens():
    mask = torch.tensor([[True, False, True, True]])
    values = torch.tensor([[0.2, 9.0, 0.5, 0.8]], dtype=torch.float64)
    estimates = generalized_advantages(REWARDS, values, mask, lambda_=1.0, n_step=1)
    assert estimates[0].tolist() == row([0.3, 0, 0.3, 0.2])


def test_the_reward_is_on_the_last_token_that_counts():
    mask = torch.tensor([[True, True, False], [False, False, False], [True, False, True]])
    rewards = last_token_rewards(torch.tensor([1.0, 2.0, 3.0]), mask)
    assert rewards.tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 3]]
