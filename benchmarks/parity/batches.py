"""Random batches as plain numbers, so that both sides get the same bits. This module imports neither side."""

from random import Random
from typing import Any

from benchmarks.parity.cases import MAX_NEW_TOKENS

PROMPTS, GROUP_SIZE = 3, 4
ROWS = PROMPTS * GROUP_SIZE


def random_batch(seed: int) -> dict[str, Any]:
    """Return a batch of uneven lengths, with log-probabilities that drifted by 0.4 nats and garbage
    padding.

    One group has equal rewards, and one completion has a single token.
    """
    dice = Random(seed)
    lengths = [1, *(dice.randint(2, MAX_NEW_TOKENS) for _ in range(ROWS - 1))]
    dice.shuffle(lengths)
    width = max(lengths)

    def table(draw: Any) -> list[list[float]]:
        return [[draw() for _ in range(width)] for _ in range(ROWS)]

    old_logprobs = table(lambda: -dice.expovariate(1.0) - 0.01)

    def draw_drifted() -> list[list[float]]:
        return [[logprob + dice.gauss(0, 0.4) for logprob in row] for row in old_logprobs]

    return {
        "lengths": lengths,
        "old": old_logprobs,
        "new": draw_drifted(),
        "sampler": draw_drifted(),
        "reference": draw_drifted(),
        "entropy": table(lambda: dice.uniform(0, 3)),
        "rewards": [_rewards(dice), _rewards(dice)],
        "truncated": [dice.random() < 0.3 for _ in range(ROWS)],
        "holes": [[dice.random() < 0.3 for _ in range(width)] for _ in range(ROWS)],
    }


def _rewards(dice: Random) -> list[float]:
    """Return rewards in eighths, which are exact in TRL's single precision. The last group's are equal."""
    return [dice.randint(-8, 8) / 8 for _ in range(ROWS - GROUP_SIZE)] + [0.625] * GROUP_SIZE
