"""Properties of token advantages for arbitrary completions."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from worker.objective.gae import generalized_advantages
from worker.objective.whitening import whitened_advantages

NAN = float("nan")
shares = st.floats(0, 1)


@st.composite
def rows(draw):
    """Return rewards, values and mask of some completions, with garbage where the mask is False."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    shape = (draw(st.integers(1, 4)), draw(st.integers(1, 7)))
    mask = torch.rand(shape, generator=generator) < 0.7
    tensors = [
        torch.randn(shape, generator=generator, dtype=torch.float64).where(mask, NAN) for _ in range(2)
    ]
    return *tensors, mask


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


@given(rows(), shares, shares, st.integers(0, 8))
def test_masked_tokens_have_no_effect(drawn_rows, gamma, lambda_, n_step):
    estimates = generalized_advantages(*drawn_rows, gamma=gamma, lambda_=lambda_, n_step=n_step)
    assert (estimates[~drawn_rows[2]] == 0).all()
    for row, (rewards, values, mask) in enumerate(zip(*drawn_rows, strict=True)):
        unmasked = [tensor[mask][None] for tensor in (rewards, values, mask)]
        if mask.any():
            row_estimates = generalized_advantages(*unmasked, gamma=gamma, lambda_=lambda_, n_step=n_step)
            close(estimates[row][mask], row_estimates[0])


@given(rows())
def test_with_lambda_1_an_advantage_is_the_future_reward_minus_the_value(drawn_rows):
    rewards, values, mask = drawn_rows
    estimates = generalized_advantages(*drawn_rows, lambda_=1.0)
    masked_rewards = rewards.where(mask, 0.0)
    to_come = masked_rewards.flip(1).cumsum(dim=1).flip(1)
    close(estimates, (to_come - values.where(mask, 0.0)).where(mask, 0.0))


@given(rows(), shares)
def test_one_step_ahead_is_lambda_0(drawn_rows, lambda_):
    close(
        generalized_advantages(*drawn_rows, lambda_=lambda_, n_step=1),
        generalized_advantages(*drawn_rows, lambda_=0.0),
    )


@given(rows())
def test_a_perfect_critic_leaves_no_advantage(drawn_rows):
    rewards, _, mask = drawn_rows
    values = rewards.where(mask, 0.0).flip(1).cumsum(dim=1).flip(1)
    estimates = generalized_advantages(rewards, values, mask, lambda_=0.95)
    close(estimates, torch.zeros_like(estimates))
    assert (whitened_advantages(estimates, mask, ddof=1, eps=1e-8).abs() < 1e-6).all() or not mask.any()
