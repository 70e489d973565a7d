"""Sums and means over unmasked tokens. Masked values may be garbage, including NaN and infinities."""

from jaxtyping import Bool, Float, Int
from torch import Tensor


def zero_masked(values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Return the values with 0 on masked tokens, in single precision or better.

    Mask before any exp, because exp of garbage in the padding, times 0, may be NaN. The gradient of a masked
    token is exactly 0.
    """
    wide_values = values if values.dtype.itemsize >= 4 else values.float()
    return wide_values.where(mask, wide_values.new_zeros(()))


def lengths(mask: Bool[Tensor, "B T"]) -> Int[Tensor, "B"]:
    """Return the number of unmasked tokens of each completion, which may be 0."""
    return mask.sum(dim=1)


def token_mean(values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B 1"]:
    """Return the mean of each completion's values, which are 0 where masked, or 0 without tokens."""
    return values.sum(dim=1, keepdim=True) / lengths(mask).clamp(min=1).unsqueeze(1)
