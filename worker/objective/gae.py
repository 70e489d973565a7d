"""Generalized advantage estimation (GAE): advantages of tokens from a critic's values.

Columns are completion tokens. The value of column t is the critic's estimate before token t is written, and
the reward of column t is paid after it. Values under a False mask may be garbage, even NaN.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from worker.objective import masked


class GaeEstimate(NamedTuple):
    """The estimates for the tokens of a step, constant for the gradient and 0 where masked."""

    advantages: Float[Tensor, "B T"]
    """The advantage of each token over the critic's expectation."""
    returns: Float[Tensor, "B T"]
    """The targets of the critic's regression."""


def generalized_advantages(
    rewards: Float[Tensor, "B T"],
    values: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    gamma: float = 1.0,
    lambda_: float | Float[Tensor, "B"] = 0.95,
    n_step: int = 0,
) -> Float[Tensor, "B T"]:
    """Return the discounted sum of the critic's temporal-difference errors from each token on.

        d[t] = r[t] + gamma V[t+1] - V[t],  A[t] = sum_k (gamma lambda)^k d[t+k]

    t+1 is the next unmasked token; V is 0 after the last one. lambda 0 relies on the critic and lambda 1 only
    on the rewards (Monte Carlo). There is one lambda for all completions or one for each. `n_step` > 0 cuts
    the sum after that many tokens and replaces the remainder by the critic's value; 0 never cuts it. Masked
    tokens, such as a tool's output, get 0 and pass on V and A of the next unmasked token unchanged.
    Source: Schulman et al., arXiv:1506.02438, equation 16.
    """
    errors, is_counted = _td_errors(rewards, values, mask, gamma=gamma), mask.to(values.dtype)
    decay = gamma * torch.as_tensor(lambda_, dtype=values.dtype, device=values.device).expand(len(values))
    advantages = _discounted_sums(errors, is_counted, decay)
    if n_step > 0:
        advantages = advantages - _n_steps_later(advantages, mask, n_step) * (decay**n_step).unsqueeze(1)
    return masked.zero_masked(advantages, mask)


def length_adaptive_lambda(lengths: Int[Tensor, "B"], *, alpha: float) -> Float[Tensor, "B"]:
    """Return lambda[i] = 1 - 1 / (alpha L[i]), at least 0, which spreads credit over more tokens if L is
    large.

    Source: VAPO, arXiv:2504.05118, section 4.2 (alpha 0.05). It is 0 for an empty completion.
    """
    return (1 - 1 / (alpha * lengths.double()).clamp(min=1e-9)).clamp(min=0)


def last_token_rewards(rewards: Float[Tensor, "B"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Return each completion's reward on its last unmasked token and 0 on all other tokens."""
    tokens_left = mask.flip(1).cumsum(dim=1).flip(1)  # number of unmasked tokens from this column on
    return rewards.unsqueeze(1) * (mask & (tokens_left == 1))


def _td_errors(
    rewards: Float[Tensor, "B T"], values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, gamma: float
) -> Float[Tensor, "B T"]:
    rewards, values = masked.zero_masked(rewards, mask), masked.zero_masked(values, mask)
    errors = torch.zeros_like(values)
    next_values = values.new_zeros(len(values))  # (B,), value of the next unmasked token
    for t in reversed(range(values.shape[1])):
        is_counted = mask[:, t]
        errors[:, t] = (rewards[:, t] + gamma * next_values - values[:, t]).where(is_counted, 0.0)
        next_values = values[:, t].where(is_counted, next_values)
    return errors


def _discounted_sums(
    surprises: Float[Tensor, "B T"], keeps: Float[Tensor, "B T"], decay: Float[Tensor, "B"]
) -> Float[Tensor, "B T"]:
    """Return sum_k decay^k d[t+k] over the unmasked tokens from t on. Masked columns repeat the next one's
    sum.
    """
    sums = torch.zeros_like(surprises)
    total = surprises.new_zeros(len(surprises))
    for t in reversed(range(surprises.shape[1])):
        total = (surprises[:, t] + decay * total) * keeps[:, t] + total * (1 - keeps[:, t])
        sums[:, t] = total
    return sums


def _n_steps_later(
    sums: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], n_step: int
) -> Float[Tensor, "B T"]:
    """Return, for each token, the sum n unmasked tokens later, or 0 beyond the end."""
    later_sums = torch.zeros_like(sums)
    for row, counts in enumerate(mask):
        columns = counts.nonzero().flatten()
        later_sums[row, columns[:-n_step]] = sums[row, columns[n_step:]]
    return later_sums
