"""Sums of a few small numbers, `85+60+88=?`: the built-in problem, checkable by eye."""

from hashlib import blake2b
from math import comb

from worker.problems.base import Split
from worker.prompt import Prompt

EVAL_SHARE = 8
"""One in this many sets of operands is held out for evaluation."""

FEWEST_SETS = 200
"""Smaller spaces leave too few held-out sums to evaluate on."""


class Sums:
    """Sums of `operands` integers drawn uniformly from [low, high].

    The split is a property of the operands alone: a hash of the sorted operands decides it, whatever the
    seed. So a held-out sum, in any order of its operands, is never trained on, in any run, nor in the
    warm start of the tiny policy. The eval split ignores the seed: all runs face the same questions.
    """

    name = "sums"

    def __init__(
        self, *, seed: int, operands: int = 3, low: int = 10, high: int = 99, domain: str = "math"
    ) -> None:
        _check_space(operands=operands, low=low, high=high)
        self.seed, self.operands, self.low, self.high, self.domain = seed, operands, low, high, domain

    def sample(self, index: int, split: Split) -> Prompt:
        """Prompt number `index` of a split; the same sum may come again under another index."""
        stream = f"test/{index}" if split == "eval" else f"train/{self.seed}/{index}"
        attempt = 0
        while is_held_out(numbers := self._draw(f"{stream}/{attempt}")) != (split == "eval"):
            attempt += 1
        expression = "+".join(map(str, numbers))
        return Prompt(
            id=f"sums/{expression}",
            text=f"{expression}=?",
            answer=str(sum(numbers)),
            problem=self.name,
            domain=self.domain,
            index=index,
        )

    def _draw(self, key: str) -> tuple[int, ...]:
        span = self.high - self.low + 1
        digest = blake2b(key.encode(), digest_size=64).digest()
        words = (digest[at : at + 8] for at in range(0, 8 * self.operands, 8))
        return tuple(self.low + int.from_bytes(word) % span for word in words)


def is_held_out(numbers: tuple[int, ...]) -> bool:
    """Whether a sum belongs to the eval split, in whatever order its operands stand."""
    key = "+".join(map(str, sorted(numbers)))
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest()) % EVAL_SHARE == 0


def _check_space(*, operands: int, low: int, high: int) -> None:
    if not 2 <= operands <= 8:
        raise ValueError(f"sums: operands must be between 2 and 8, got {operands}")
    if not 0 <= low < high <= 999_999:
        raise ValueError(f"sums: expected 0 <= low < high <= 999999, got low {low} and high {high}")
    sets = comb(high - low + operands, operands)
    if sets < FEWEST_SETS:
        raise ValueError(
            f"sums: {operands} operands in [{low}, {high}] make {sets} different sums, "
            f"expected at least {FEWEST_SETS} so that some can be held out"
        )
