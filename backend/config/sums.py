"""Draw of the operands of `sums`: the worker makes prompts of them, the service shows the first ones."""

from hashlib import blake2b

EVAL_SHARE = 8
"""One in this many sets of operands is held out for evaluation."""


def draw_operands(
    stream: str, *, operands: int, low: int, high: int, is_eval: bool = False
) -> tuple[int, ...]:
    """`operands` integers, uniform in [low, high], of a stream; those of the other split are left out."""
    span, attempt = high - low + 1, 0
    while True:
        digest = blake2b(f"{stream}/{attempt}".encode(), digest_size=64).digest()
        words = (digest[at : at + 8] for at in range(0, 8 * operands, 8))
        numbers = tuple(low + int.from_bytes(word) % span for word in words)
        if is_held_out(numbers) == is_eval:
            return numbers
        attempt += 1


def is_held_out(numbers: tuple[int, ...]) -> bool:
    """Return whether a sum belongs to the eval split, regardless of the order of its operands."""
    key = "+".join(map(str, sorted(numbers)))
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest()) % EVAL_SHARE == 0
