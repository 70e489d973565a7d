"""Estimate the KL divergence from the reference policy and adapt its coefficient.

KL = E_policy[x] for x = policy - reference log-probability of a token, which is 0 on masked tokens.
Estimators: Schulman, "Approximating KL divergence" (2020).
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

X_LIMIT = 20.0
"""Largest |x| in nats. k1 and k2 clamp larger distances, and k3 continues along its tangent (as in verl)."""


def log_ratio_to_reference(
    policy_logprobs: Float[Tensor, "B T"], reference_logprobs: Float[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Return x = policy - reference. Both inputs are 0 on masked tokens."""
    return policy_logprobs - reference_logprobs


def k1(x: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Return clamp(x, -20, 20): unbiased, may be negative. Its gradient is 1, which averages to 0
    on-policy.
    """
    return x.clamp(-X_LIMIT, X_LIMIT)


def k2(x: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Return clamp(x, -20, 20)^2 / 2: biased, but its gradient x is the on-policy gradient of the KL."""
    return x.clamp(-X_LIMIT, X_LIMIT).square() / 2


def k3(x: Float[Tensor, "B T"], *, limit: float = math.inf) -> Float[Tensor, "B T"]:
    """Return min(exp(-x) + x - 1, limit): unbiased, never negative, with gradient 1 - exp(-x).

    The gradient is 0 beyond the limit. For x < -20 the estimate continues along its tangent, so that neither
    value nor gradient overflows and the gradient does not vanish. Source: GRPO, arXiv:2402.03300, equation 4.
    """
    is_far = x < -X_LIMIT
    bounded_x = x.masked_fill(is_far, -X_LIMIT)
    # expm1 keeps small x exact; relu removes rounding errors below 0.
    estimate = torch.relu(torch.expm1(-bounded_x) + bounded_x)
    linear_estimate = estimate + math.expm1(X_LIMIT) * (-X_LIMIT - x)
    return torch.where(is_far, linear_estimate, estimate).clamp(max=limit)


def dual_descent(coef: float, kl: float, *, target: float) -> float:
    """Return the next coefficient: doubled if KL > 1.5 target, halved if KL < target / 1.5.

    Source: PPO's adaptive penalty, arXiv:1707.06347, section 4.
    """
    if kl > 1.5 * target:
        return 2 * coef
    return coef / 2 if kl < target / 1.5 else coef


def horizon_control(coef: float, kl: float, *, target: float, completions: int, horizon: int) -> float:
    """Return the next coefficient, adjusted in proportion to the KL's distance from its target.

        coef (1 + clip(KL / target - 1, -0.2, 0.2) completions / horizon)

    Source: Ziegler et al., arXiv:1909.08593, section 2.2.
    """
    error = min(max(kl / target - 1, -0.2), 0.2)
    return coef * (1 + error * completions / horizon)


def reward_penalty(
    old_logprobs: Float[Tensor, "B T"],
    reference_logprobs: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
) -> Float[Tensor, "B T"]:
    """Return the per-token penalty for a KL term in the reward: k1 between old and reference policy.

        penalty[i, t] = m (old[i, t] - ref[i, t])

    With a critic, it is subtracted from each token's reward (InstructGPT, arXiv:2203.02155, equation 2).
    Otherwise the sum is subtracted from the completion's reward (RLOO, arXiv:2402.14740, equation 2).
    """
    x = k1(log_ratio_to_reference(old_logprobs, reference_logprobs))
    return x.where(mask, x.new_zeros(()))
