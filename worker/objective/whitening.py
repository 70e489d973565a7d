"""Advantages with mean 0 and standard deviation 1 over a whole batch."""

from jaxtyping import Float, Shaped
from torch import Tensor


def whitened_advantages(
    advantages: Float[Tensor, "B N"], counts: Shaped[Tensor, "B N"], *, ddof: int, eps: float
) -> Float[Tensor, "B N"]:
    """Return the advantages whitened to mean 0 and standard deviation 1, each counted `counts` times.

        A' = (A - mean) / (std + eps)
        n = sum c,  mean = sum c A / n,  std^2 = sum c (A - mean)^2 / (n - ddof)

    Counts (B, 1) of 1 whiten over completions (Magistral, arXiv:2506.10910). Token counts (B, 1) weight each
    completion by its tokens (REINFORCE++, arXiv:2501.03262; ProRL v2). A mask (B, T) with advantages (B, T)
    whitens over tokens (PPO, arXiv:1707.06347). An advantage with count 0 is ignored and returned as 0.
    Advantages that are all equal become 0.
    """
    zero = advantages.new_zeros(())
    is_counted = counts > 0
    values = advantages.where(is_counted, zero)
    counts = counts.to(values.dtype)
    total = counts.sum()
    mean = (counts * values).sum() / total.clamp(min=1)
    squares = (counts * (values - mean).square()).sum()
    deviation = (squares / (total - ddof).clamp(min=1)).sqrt() + eps
    # Compare max and min instead of testing std == 0: the mean of equal floats may differ from them by a
    # rounding error.
    max_value = values.masked_fill(~is_counted, -float("inf")).amax()
    min_value = values.masked_fill(~is_counted, float("inf")).amin()
    return ((values - mean) / deviation).where(is_counted & (max_value > min_value), zero)
