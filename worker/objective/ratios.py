"""Importance ratios between the current policy and the policy that sampled a completion.

Every function returns log-ratios, so that exp is taken once, after clamping. If old = new, every ratio is 1.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from worker.objective import masked

LOG_RATIO_LIMIT = 20.0
"""Largest absolute log-ratio in nats. exp(20) is 4.9e8, beyond any meaningful ratio and far below
overflow.
"""


def token_log_ratio(
    policy_logprobs: Float[Tensor, "B T"], old_logprobs: Float[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Return one log-ratio per token.

        log r[i, t] = clamp(policy[i, t] - old[i, t], -20, 20)

    Both inputs are 0 on masked tokens, and so is the result. There is no gradient beyond the clamp.
    Source: PPO, arXiv:1707.06347, equation 6; GRPO, arXiv:2402.03300.
    """
    return (policy_logprobs - old_logprobs).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def sequence_geometric(log_ratio: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B 1"]:
    """Return the logarithm of the geometric mean of a completion's token ratios.

        log s[i] = mean_t log r[i, t]

    Source: GSPO, arXiv:2507.18071, equation 7.
    """
    return masked.token_mean(log_ratio, mask)


def sequence_geometric_token(
    log_ratio: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Return the sequence's geometric mean as the value of every token, with the gradient of that token.

        log s[i, t] = sg[mean_t log r[i, t]] + policy[i, t] - sg[policy[i, t]]

    With one advantage per completion its gradient equals that of `sequence_geometric`.
    Source: GSPO-token, arXiv:2507.18071, equation 14.
    """
    token_gradient = log_ratio - log_ratio.detach()  # detach: value 0, gradient of the token itself
    return sequence_geometric(log_ratio.detach(), mask) + token_gradient  # detach: the mean is a constant


def sequence_product(log_ratio: Float[Tensor, "B T"]) -> Float[Tensor, "B 1"]:
    """Return the logarithm of the product of a completion's token ratios.

        log p[i] = clamp(sum_t log r[i, t], -20, 20)

    The product is the ratio of sequence probabilities. Its spread grows with length. Source: the book's
    chapter 7 (seed 001, listing 7.8).
    """
    total = log_ratio.sum(dim=1, keepdim=True)  # (B, 1)
    return torch.clamp(total, -LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
