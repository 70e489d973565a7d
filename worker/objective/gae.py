"""Advantages of single tokens from a critic: generalized advantage estimation (GAE).

Columns are completion tokens. The value of column t is what the critic expects before token t is written; the
reward of column t is paid after it. Under a False mask anything may stand, even NaN.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from worker.objective import masked


class GaeEstimate(NamedTuple):
    """Return the estimates of a step's tokens from critic and rewards; constants, 0 where masked."""

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
    """Discounted sum of the critic's surprises from each token on.

        d[t] = r[t] + gamma V[t+1] - V[t],  A[t] = sum_k (gamma lambda)^k d[t+k]

    t+1 is the next token that counts; after the last one V is 0. lambda 0 uses only the critic, lambda 1
    the rewards alone (Monte Carlo); one lambda for all or one for each completion. `n_step` > 0 ends the sum
    after that many tokens, the rest being the critic's guess; 0 never ends it. Masked tokens (a tool's
    output) pass V and A of the next token that counts through unchanged and get 0 themselves.
    Source: Schulman et al., arXiv:1506.02438, equation 16.
    """
    surprises, keeps = _td_errors(rewards, values, mask, gamma=gamma), mask.to(values.dtype)
    decay = gamma * torch.as_tensor(lambda_, dtype=values.dtype, device=values.device).expand(len(values))
    advantages = _discounted_sums(surprises, keeps, decay)
    if n_step > 0:
        advantages = advantages - _n_steps_later(advantages, mask, n_step) * (decay**n_step).unsqueeze(1)
    return masked.zero_masked(advantages, mask)


def length_adaptive_lambda(lengths: Int[Tensor, "B"], *, alpha: float) -> Float[Tensor, "B"]:
    """lambda[i] = 1 - 1 / (alpha L[i]), never below 0: long completions are credited over more tokens.

    Source: VAPO, arXiv:2504.05118, section 4.2 (alpha 0.05). 0 for an empty completion.
    """
    return (1 - 1 / (alpha * lengths.double()).clamp(min=1e-9)).clamp(min=0)


def last_token_rewards(rewards: Float[Tensor, "B"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Return a completion's reward on its last token that counts, 0 on all others; nothing without tokens."""
    following = mask.flip(1).cumsum(dim=1).flip(1)  # tokens from here on
    return rewards.unsqueeze(1) * (mask & (following == 1))


def _td_errors(
    rewards: Float[Tensor, "B T"], values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, gamma: float
) -> Float[Tensor, "B T"]:
    rewards, values = masked.zero_masked(rewards, mask), masked.zero_masked(values, mask)
    surprises = torch.zeros_like(values)
    following = values.new_zeros(len(values))  # (B,) value of the next token that counts
    for t in reversed(range(values.shape[1])):
        counts_here = mask[:, t]
        surprises[:, t] = (rewards[:, t] + gamma * following - values[:, t]).where(counts_here, 0.0)
        following = values[:, t].where(counts_here, following)
    return surprises


def _discounted_sums(
    surprises: Float[Tensor, "B T"], keeps: Float[Tensor, "B T"], decay: Float[Tensor, "B"]
) -> Float[Tensor, "B T"]:
    """sum_k decay^k d[t+k] over the tokens that count from t on; masked columns repeat the next one's sum."""
    sums = torch.zeros_like(surprises)
    total = surprises.new_zeros(len(surprises))
    for t in reversed(range(surprises.shape[1])):
        total = (surprises[:, t] + decay * total) * keeps[:, t] + total * (1 - keeps[:, t])
        sums[:, t] = total
    return sums


def _n_steps_later(
    sums: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], n_step: int
) -> Float[Tensor, "B T"]:
    """Return for each token the sum n unmasked tokens after it; 0 beyond the end."""
    later = torch.zeros_like(sums)
    for row, counts in enumerate(mask):
        places = counts.nonzero().flatten()
        later[row, places[:-n_step]] = sums[row, places[n_step:]]
    return later
