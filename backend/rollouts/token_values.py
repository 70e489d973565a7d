"""Encode per-token values: exactly if the loss is recomputed from them, otherwise in at most three bytes."""

import math
from typing import Any, Literal, assert_never

import numpy as np
from numpy.typing import NDArray

Kind = Literal["f4", "f3", "i1", "s3", "u3"]

EXACT_VALUES = frozenset(
    {"logprob", "policy_logprob", "old_logprob", "reference_logprob", "policy_entropy", "advantage"}
)
"""Values from which the loss is recomputed."""

COMPUTED_FROM = EXACT_VALUES | {
    "covariant", "entropy_coef", "kl_coef", "loss", "mask", "router_shift", "uncertain",
}  # fmt: skip
"""Values from which the loss is recomputed, and the recorded loss; these are kept longest."""

FLAG_VALUES = frozenset({"clipped", "covariant", "mask", "uncertain"})
"""Values that are small whole numbers."""

SUM_VALUES = frozenset({"loss", "loss_policy", "loss_kl", "loss_entropy", "loss_nll", "gradient"})
"""Values that are summands of a number of the step, whose sum must be as accurate as each of them."""

ALTERNATIVE_PREFIX = "alternative_"
"""Prefix of the names of the most likely tokens' ids and log-probabilities."""

MAX_ENCODED = 2**23 - 2
"""Maximum whole number of an encoded summand, leaving room for rounding up."""


def value_kind(name: str) -> Kind:
    """Return the encoding of the value with this name."""
    if name in EXACT_VALUES:
        return "f4"
    if name in FLAG_VALUES:
        return "i1"
    if name.startswith(ALTERNATIVE_PREFIX) and name.endswith("_id"):
        return "u3"
    return "s3" if name in SUM_VALUES else "f3"


def alternative_names(rank: int) -> tuple[str, str]:
    """Return the names of the token ids and log-probabilities of a rank; rank 0 is the most likely."""
    return f"{ALTERNATIVE_PREFIX}{rank}_id", f"{ALTERNATIVE_PREFIX}{rank}_logprob"


def value_width(kind: Kind) -> int:
    """Return the size of a value in bytes."""
    return int(kind[1])


def encode(values: Any, kind: Kind) -> tuple[bytes, float]:
    """Return the bytes of (T,) values and their scale; a scale of 0 marks non-finite sums, which are kept as
    f3.
    """
    float_values = np.asarray(values, np.float32)
    match kind:
        case "f4":
            return float_values.astype("<f4", copy=False).tobytes(), 1.0
        case "i1":
            return np.nan_to_num(float_values).clip(-128, 127).astype("<i1").tobytes(), 1.0
        case "f3":
            return _shorten(float_values), 1.0
        case "u3":  # float32 represents whole numbers below 2**24 exactly
            return _planes(np.nan_to_num(float_values).clip(0, 2**24 - 1).astype("<i4"), first=0), 1.0
        case "s3":
            largest = float(np.abs(float_values).max(initial=0.0))
            if not math.isfinite(largest):
                return _shorten(float_values), 0.0
            scale = 2.0 ** math.ceil(math.log2(max(largest, 1e-30) / MAX_ENCODED))
            # Rounding the running sum instead of each value carries every rounding error into the next token.
            sums = np.rint(np.cumsum(float_values, dtype=np.float64) / scale)
            return _planes(np.diff(sums, prepend=0.0).astype("<i4"), first=0), scale
        case _:
            assert_never(kind)


def decode(raw: bytes, offset: int, count: int, kind: Kind, scale: float) -> NDArray[np.float32]:
    """Return the (T,) values whose bytes start at `offset`; raise ValueError for an unknown kind."""
    match kind:
        case "f4":
            return np.frombuffer(raw, "<f4", count, offset)
        case "i1":
            return np.frombuffer(raw, "<i1", count, offset).astype(np.float32)
        case "f3":
            return _unpack_words(raw, offset, count).view("<f4")
        case "u3":
            return (_unpack_words(raw, offset, count).view("<u4") >> 8).astype(np.float32)
        case "s3":
            words = _unpack_words(raw, offset, count)
            if not scale:
                return words.view("<f4")
            return ((words >> 8) * np.float64(scale)).astype(np.float32)
        case _:
            raise ValueError(f"no kind of values is named {kind!r}")


def _shorten(values: NDArray[np.float32]) -> bytes:
    """Return the upper three bytes of each number, rounded to nearest; non-finite numbers stay unchanged."""
    bits = values.astype("<f4").view("<u4")
    rounded_bits = np.where(np.isfinite(values), bits + np.uint32(0x80), bits)
    quiet = np.where(np.isnan(values), rounded_bits | np.uint32(0x400000), rounded_bits)
    return _planes(quiet.astype("<u4"), first=1)


def _planes(words: NDArray[Any], *, first: int) -> bytes:
    """Return three bytes of each word, grouped by byte position, because this compresses better."""
    return words.view(np.uint8).reshape(-1, 4)[:, first : first + 3].T.tobytes()


def _unpack_words(raw: bytes, offset: int, count: int) -> NDArray[np.int32]:
    """Return words with the stored upper three bytes and a zero lower byte."""
    words = np.zeros((count, 4), np.uint8)
    words[:, 1:] = np.frombuffer(raw, np.uint8, 3 * count, offset).reshape(3, count).T
    return words.view("<i4").reshape(count)
