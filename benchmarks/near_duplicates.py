"""Time of finding near duplicates among many questions, on one core.

    python -m benchmarks.near_duplicates [QUESTIONS]

`text`: 100 words each, drawn by Zipf's law; one in twenty has one word changed.
`stories`: 60 words, one of 50 stories with 4 words exchanged: many are just below the limit.
`one story`: 200 words of one story with 14 words exchanged: every pair is just below the limit.
"""

import sys
import time

import numpy as np
from numpy.typing import NDArray

from backend.catalog.datasets.similarity import near_duplicates

LIMIT = 0.7
SYLLABLES = [f"{a}{b}" for a in "bdfgklmnprst" for b in "aeiou"]
WORDS = np.array([f"{a}{b}{c}" for a in SYLLABLES for b in SYLLABLES for c in SYLLABLES[:6]])
SHARES = 1 / (np.arange(len(WORDS)) + 10)
SHARES /= SHARES.sum()


def drawn(random: np.random.Generator, *shape: int) -> NDArray[np.str_]:
    """Words by Zipf's law."""
    return random.choice(WORDS, shape, p=SHARES)


def text(random: np.random.Generator, count: int) -> list[str]:
    """Questions of their own, and copies with one word changed."""
    rows = drawn(random, count, 100)
    for row in range(20, count, 20):
        rows[row] = rows[random.integers(row)]
        rows[row, random.integers(100)] = "changed"
    return [" ".join(row) for row in rows]


def stories(random: np.random.Generator, count: int, *, kinds: int, length: int, changed: int) -> list[str]:
    """Questions made from a few, with some words exchanged."""
    rows = drawn(random, kinds, length)[random.integers(kinds, size=count)]
    for row in rows:
        row[random.integers(length, size=changed)] = random.choice(WORDS, changed)
    return [" ".join(row) for row in rows]


def main() -> None:
    """Print a line for each kind of questions."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    random = np.random.default_rng(0)
    for name, questions in (
        ("text", text(random, count)),
        ("stories", stories(random, count, kinds=50, length=60, changed=4)),
        ("one story", stories(random, count, kinds=1, length=200, changed=14)),
    ):
        began, worked = time.perf_counter(), time.process_time()
        found = near_duplicates(questions, [], LIMIT)
        seconds, own = time.perf_counter() - began, time.process_time() - worked
        print(f"{name:10} {count:,} questions: {len(found):,} found, {seconds:.1f} s ({own:.1f} s of a core)")


if __name__ == "__main__":
    main()
