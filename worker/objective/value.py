"""Loss and explained variance of the critic."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from worker.objective import masked


class ValueLoss(NamedTuple):
    """The losses of tokens, which are 0 where masked."""

    losses: Float[Tensor, "B T"]
    """The losses, with their gradient."""
    clipped: Bool[Tensor, "B T"]
    """Mask of the tokens whose clipped error was larger, so that they have no gradient."""


def value_loss(
    values: Float[Tensor, "B T"],
    old_values: Float[Tensor, "B T"],
    returns: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    clip: float,
) -> ValueLoss:
    """Return half the squared error, clipped pessimistically to limit the change of a value in one step.

        l[t] = 1/2 max((V - ret)^2, (clip(V, V_old - eps, V_old + eps) - ret)^2)

    `clip` is eps in units of reward; 0 disables clipping. The loss of an optimizer batch is the
    mean over its tokens. Source: PPO's reference code; Engstrom et al., arXiv:2005.12729, section 3.
    """
    values, old_values, returns = (
        masked.zero_masked(tensor, mask) for tensor in (values, old_values, returns)
    )
    unclipped_errors = (values - returns).square()
    if clip == 0:
        return ValueLoss(unclipped_errors / 2, torch.zeros_like(mask))
    clipped_values = old_values + (values - old_values).clamp(-clip, clip)
    clipped_errors = (clipped_values - returns).square()
    return ValueLoss(torch.maximum(unclipped_errors, clipped_errors) / 2, clipped_errors > unclipped_errors)


def explained_variance(
    values: Float[Tensor, "B T"], returns: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> float | None:
    """Return 1 - Var(ret - V) / Var(ret) over tokens.

    It is 1 for a perfect critic, 0 for one that predicts only the mean, and negative for a worse one. Return
    None if all returns are equal.
    """
    targets = returns[mask].double()
    if len(targets) < 2 or bool(targets.max() == targets.min()):
        return None
    return 1 - float((targets - values[mask].double()).var(correction=0) / targets.var(correction=0))
