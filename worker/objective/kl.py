"""Estimates of the divergence from the reference, from x = policy - reference log-probability of a token.

KL = E_policy[x]. Estimators: Schulman, "Approximating KL divergence" (2020). x is 0 on masked tokens.
"""

import math

import torch
from jaxtyping import Bool, Float
from torch import Tensor

X_LIMIT = 20.0
"""Nats; k1 and k2 count a larger distance as this, and k3 continues along its tangent (verl's value)."""


def log_ratio_to_reference(
    policy_logprobs: Float[Tensor, "B T"], reference_logprobs: Float[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """x = policy - reference; inputs are 0 on masked tokens."""
    return policy_logprobs - reference_logprobs


def k1(x: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """clamp(x, -20, 20): unbiased, may be negative; gradient 1, which is 0 on average on-policy."""
    return x.clamp(-X_LIMIT, X_LIMIT)


def k2(x: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """clamp(x, -20, 20)^2 / 2: biased value; its gradient x is the on-policy KL gradient."""
    return x.clamp(-X_LIMIT, X_LIMIT).square() / 2


def k3(x: Float[Tensor, "B T"], *, limit: float = math.inf) -> Float[Tensor, "B T"]:
    """min(exp(-x) + x - 1, limit): unbiased and never negative; gradient 1 - exp(-x), 0 beyond the limit.

    Where x < -20 it continues along its tangent there, so that neither value nor gradient overflows and the
    pull does not end. Source: GRPO, arXiv:2402.03300, equation 4.
    """
    is_far = x < -X_LIMIT
    near = x.masked_fill(is_far, -X_LIMIT)
    # expm1 keeps small x exact; relu removes the last rounding below 0
    estimate = torch.relu(torch.expm1(-near) + near)
    beyond = estimate + math.expm1(X_LIMIT) * (-X_LIMIT - x)
    return torch.where(is_far, beyond, estimate).clamp(max=limit)


def dual_descent(coef: float, kl: float, *, target: float) -> float:
    """Return the next coefficient: doubled where KL > 1.5 target, halved where KL < target / 1.5.

    Source: PPO's adaptive penalty, arXiv:1707.06347, section 4.
    """
    if kl > 1.5 * target:
        return 2 * coef
    return coef / 2 if kl < target / 1.5 else coef


def horizon_control(coef: float, kl: float, *, target: float, completions: int, horizon: int) -> float:
    """Return the next coefficient, proportional to how far the KL is from its target.

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
    """Return k1 between old policy and reference: the deduction per token of a KL in the reward.

        penalty[i, t] = m (old[i, t] - ref[i, t])

    With a critic each token's reward loses its own (InstructGPT, arXiv:2203.02155, equation 2); a reward for
    the whole completion loses the sum (RLOO, arXiv:2402.14740, equation 2).
    """
    x = k1(log_ratio_to_reference(old_logprobs, reference_logprobs))
    return x.where(mask, x.new_zeros(()))
