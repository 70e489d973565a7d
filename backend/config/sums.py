"""Draw the operands of `sums` problems, for training prompts in the worker and previews in the service."""

from hashlib import blake2b

HELD_OUT_ONE_IN = 8
"""Inverse of the fraction of operand sets that are held out for evaluation."""


def draw_operands(
    stream: str, *, operands: int, low: int, high: int, is_eval: bool = False
) -> tuple[int, ...]:
    """Return `operands` random integers in [low, high] for a stream name,
    from the training or the eval split.
    """
    span, attempt = high - low + 1, 0
    while True:
        digest = blake2b(f"{stream}/{attempt}".encode(), digest_size=64).digest()
        chunks = (digest[offset : offset + 8] for offset in range(0, 8 * operands, 8))
        numbers = tuple(low + int.from_bytes(chunk) % span for chunk in chunks)
        if is_held_out(numbers) == is_eval:
            return numbers
        attempt += 1


def is_held_out(numbers: tuple[int, ...]) -> bool:
    """Return whether a sum belongs to the eval split, regardless of the order of its operands."""
    key = "+".join(map(str, sorted(numbers)))
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest()) % HELD_OUT_ONE_IN == 0
