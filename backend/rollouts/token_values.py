"""Per-token values as bytes: exact where a loss is computed again from them, else at most three bytes."""

import math
from typing import Any, Literal, assert_never

import numpy as np
from numpy.typing import NDArray

Kind = Literal["f4", "f3", "i1", "s3", "u3"]

EXACT = frozenset(
    {"logprob", "policy_logprob", "old_logprob", "reference_logprob", "policy_entropy", "advantage"}
)
"""Values that the loss is computed again from."""

COMPUTED_FROM = EXACT | {
    "covariant", "entropy_coef", "kl_coef", "loss", "mask", "router_shift", "uncertain",
}  # fmt: skip
"""Values that the loss is computed again from, and what it was: kept longest."""

FLAGS = frozenset({"clipped", "covariant", "mask", "uncertain"})
"""Small whole numbers."""

SUMS = frozenset({"loss", "loss_policy", "loss_kl", "loss_entropy", "loss_nll", "gradient"})
"""Parts of a number of the step: their sum has to be right, not only each of them."""

ALTERNATIVE = "alternative_"
"""Begins the names of the most likely tokens' ids and log-probabilities."""

STEPS = 2**23 - 2
"""Largest whole number of a sum's part, but for the one that rounding may add."""


def value_kind(name: str) -> Kind:
    """Return the encoding of a value of this name."""
    if name in EXACT:
        return "f4"
    if name in FLAGS:
        return "i1"
    if name.startswith(ALTERNATIVE) and name.endswith("_id"):
        return "u3"
    return "s3" if name in SUMS else "f3"


def alternative_names(rank: int) -> tuple[str, str]:
    """Return the names of the ids and of the log-probabilities of the tokens of a rank; 0 is the most
    likely.
    """
    return f"{ALTERNATIVE}{rank}_id", f"{ALTERNATIVE}{rank}_logprob"


def value_width(kind: Kind) -> int:
    """Bytes of a value."""
    return int(kind[1])


def encode(values: Any, kind: Kind) -> tuple[bytes, float]:
    """Return the bytes of (T,) values, and their scale; 0 where parts of a sum are not finite, kept as f3."""
    exact = np.asarray(values, np.float32)
    match kind:
        case "f4":
            return exact.astype("<f4", copy=False).tobytes(), 1.0
        case "i1":
            return np.nan_to_num(exact).clip(-128, 127).astype("<i1").tobytes(), 1.0
        case "f3":
            return _shorten(exact), 1.0
        case "u3":  # float32 holds whole numbers below 2**24 exactly
            return _planes(np.nan_to_num(exact).clip(0, 2**24 - 1).astype("<i4"), first=0), 1.0
        case "s3":
            largest = float(np.abs(exact).max(initial=0.0))
            if not math.isfinite(largest):
                return _shorten(exact), 0.0
            scale = 2.0 ** math.ceil(math.log2(max(largest, 1e-30) / STEPS))
            # rounding the running sum, not each value, carries every rounding into the next token
            sums = np.rint(np.cumsum(exact, dtype=np.float64) / scale)
            return _planes(np.diff(sums, prepend=0.0).astype("<i4"), first=0), scale
        case _:
            assert_never(kind)


def decode(raw: bytes, offset: int, count: int, kind: Kind, scale: float) -> NDArray[np.float32]:
    """(T,) values from the bytes that begin at `offset`; ValueError for a kind that is not known."""
    match kind:
        case "f4":
            return np.frombuffer(raw, "<f4", count, offset)
        case "i1":
            return np.frombuffer(raw, "<i1", count, offset).astype(np.float32)
        case "f3":
            return _words(raw, offset, count).view("<f4")
        case "u3":
            return (_words(raw, offset, count).view("<u4") >> 8).astype(np.float32)
        case "s3":
            words = _words(raw, offset, count)
            if not scale:
                return words.view("<f4")
            return ((words >> 8) * np.float64(scale)).astype(np.float32)
        case _:
            raise ValueError(f"no kind of values is named {kind!r}")


def _shorten(values: NDArray[np.float32]) -> bytes:
    """Return the upper three bytes of each number, rounded to nearest; what is not finite stays unchanged."""
    bits = values.astype("<f4").view("<u4")
    rounded = np.where(np.isfinite(values), bits + np.uint32(0x80), bits)
    quiet = np.where(np.isnan(values), rounded | np.uint32(0x400000), rounded)
    return _planes(quiet.astype("<u4"), first=1)


def _planes(words: NDArray[Any], *, first: int) -> bytes:
    """Three bytes of each word, all of one place together: they compress better so."""
    return words.view(np.uint8).reshape(-1, 4)[:, first : first + 3].T.tobytes()


def _words(raw: bytes, offset: int, count: int) -> NDArray[np.int32]:
    """Return the words whose upper three bytes were kept."""
    words = np.zeros((count, 4), np.uint8)
    words[:, 1:] = np.frombuffer(raw, np.uint8, 3 * count, offset).reshape(3, count).T
    return words.view("<i4").reshape(count)
