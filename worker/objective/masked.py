"""Sums and means over the tokens that count. A False mask hides garbage, NaN and infinities included."""

from jaxtyping import Bool, Float, Int
from torch import Tensor


def zero_masked(values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Return the values with 0 in place of whatever stands on masked tokens, in single precision or better.

    Masking comes before any exp: exp of padding garbage times 0 would be NaN. The gradient of a masked
    token is exactly 0.
    """
    exact = values if values.dtype.itemsize >= 4 else values.float()
    return exact.where(mask, exact.new_zeros(()))


def lengths(mask: Bool[Tensor, "B T"]) -> Int[Tensor, "B"]:
    """Tokens that count in each completion; may be 0."""
    return mask.sum(dim=1)


def token_mean(values: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B 1"]:
    """Mean over each completion's tokens of values that are 0 where masked; 0 without tokens."""
    return values.sum(dim=1, keepdim=True) / lengths(mask).clamp(min=1).unsqueeze(1)
