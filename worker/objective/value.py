"""The critic's loss and how well the critic predicts."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from worker.objective import masked


class ValueLoss(NamedTuple):
    """Losses of single tokens; 0 where masked."""

    losses: Float[Tensor, "B T"]
    """Carries the gradient."""
    clipped: Bool[Tensor, "B T"]
    """A mask of the tokens whose clipped error was the larger one, so that they have no gradient."""


def value_loss(
    values: Float[Tensor, "B T"],
    old_values: Float[Tensor, "B T"],
    returns: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    *,
    clip: float,
) -> ValueLoss:
    """Half the squared error, pessimistic about how far a value may move in one step.

        l[t] = 1/2 max((V - ret)^2, (clip(V, V_old - eps, V_old + eps) - ret)^2)

    `clip` is eps in units of reward; 0 leaves the plain squared error. The loss of an optimizer batch is the
    mean over its tokens. Source: PPO's reference code; Engstrom et al., arXiv:2005.12729, section 3.
    """
    values, old_values, returns = (
        masked.zero_masked(tensor, mask) for tensor in (values, old_values, returns)
    )
    plain = (values - returns).square()
    if clip == 0:
        return ValueLoss(plain / 2, torch.zeros_like(mask))
    near = old_values + (values - old_values).clamp(-clip, clip)
    bounded = (near - returns).square()
    return ValueLoss(torch.maximum(plain, bounded) / 2, bounded > plain)


def explained_variance(
    values: Float[Tensor, "B T"], returns: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> float | None:
    """1 - Var(ret - V) / Var(ret) over tokens: 1 is a perfect critic, 0 one that knows only the mean.

    Below 0 it is worse than that. None if all returns are equal: there is nothing to explain.
    """
    targets = returns[mask].double()
    if len(targets) < 2 or bool(targets.max() == targets.min()):
        return None
    return 1 - float((targets - values[mask].double()).var(correction=0) / targets.var(correction=0))
