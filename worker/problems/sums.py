"""The built-in problem: sums of a few small numbers, such as `85+60+88=?`."""

from math import comb

from backend.config.sums import draw_operands
from worker.problems.base import Split
from worker.prompt import Prompt

MIN_SETS = 200
"""Minimum number of sets of operands. Smaller spaces leave too few held-out sums for evaluation."""


class Sums:
    """Sums of `operands` integers drawn uniformly from [low, high].

    The split depends only on a hash of the sorted operands, not on the seed. A held-out sum, with its
    operands in any order, is therefore never trained on in any run or in the warm start of the tiny policy.
    The eval split does not depend on the seed, so all runs get the same questions.
    """

    name = "sums"

    def __init__(
        self, *, seed: int, operands: int = 3, low: int = 10, high: int = 99, domain: str = "math"
    ) -> None:
        _check_space(operands=operands, low=low, high=high)
        self.seed, self.operands, self.low, self.high, self.domain = seed, operands, low, high, domain

    def sample(self, index: int, split: Split) -> Prompt:
        """Return prompt number `index` of a split. The same sum may occur again under another index."""
        stream = f"test/{index}" if split == "eval" else f"train/{self.seed}/{index}"
        numbers = draw_operands(
            stream, operands=self.operands, low=self.low, high=self.high, is_eval=split == "eval"
        )
        expression = "+".join(map(str, numbers))
        return Prompt(
            id=f"sums/{expression}",
            text=f"{expression}=?",
            answer=str(sum(numbers)),
            problem=self.name,
            domain=self.domain,
            index=index,
        )


def _check_space(*, operands: int, low: int, high: int) -> None:
    if not 2 <= operands <= 8:
        raise ValueError(f"sums: operands must be between 2 and 8, got {operands}")
    if not 0 <= low < high <= 999_999:
        raise ValueError(f"sums: expected 0 <= low < high <= 999999, got low {low} and high {high}")
    sets = comb(high - low + operands, operands)
    if sets < MIN_SETS:
        raise ValueError(
            f"sums: {operands} operands in [{low}, {high}] make {sets} different sums, "
            f"expected at least {MIN_SETS} so that some can be held out"
        )
