"""Advantages with mean 0 and standard deviation 1 over a whole batch."""

from jaxtyping import Float, Shaped
from torch import Tensor


def whitened_advantages(
    advantages: Float[Tensor, "B N"], counts: Shaped[Tensor, "B N"], *, ddof: int, eps: float
) -> Float[Tensor, "B N"]:
    """Advantages in units of their standard deviation around their mean, each counted `counts` times.

        A' = (A - mean) / (std + eps)
        n = sum c,  mean = sum c A / n,  std^2 = sum c (A - mean)^2 / (n - ddof)

    counts (B, 1) of 1: over completions (Magistral, arXiv:2506.10910); of tokens: each completion as often as
    it has tokens (REINFORCE++, arXiv:2501.03262; ProRL v2); a mask (B, T) with advantages (B, T): over tokens
    (PPO, arXiv:1707.06347). Where counts are 0 the advantage is 0 and takes no part; advantages that are all
    equal give zeros.
    """
    zero = advantages.new_zeros(())
    taken = counts > 0
    values = advantages.where(taken, zero)
    counts = counts.to(values.dtype)
    total = counts.sum()
    mean = (counts * values).sum() / total.clamp(min=1)
    squares = (counts * (values - mean).square()).sum()
    deviation = (squares / (total - ddof).clamp(min=1)).sqrt() + eps
    # max == min, not std == 0: the mean of equal floats may miss them by a rounding
    highest = values.masked_fill(~taken, -float("inf")).amax()
    lowest = values.masked_fill(~taken, float("inf")).amin()
    return ((values - mean) / deviation).where(taken & (highest > lowest), zero)
