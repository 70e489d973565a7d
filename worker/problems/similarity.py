"""Near duplicates: questions that say the same in almost the same words.

Similarity is the share of runs of three words that two questions have in common (Jaccard's index, as in
text-dedup and datatrove). An index of the rarest runs finds every pair above the limit, but for pairs that
share common phrases alone; MinHash would find most. Source: Bayardo et al., "Scaling up all pairs similarity
search", WWW 2007.
"""

import math
import re
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

from worker.problems.words import WORD, normalised

RUN = 3
"""Words and signs of a run."""

MOST_RUNS = 2_000
"""Runs of a question that count; what follows them in a longer one does not."""

MOST_COMPARED = 200_000
"""Questions of a source that are compared; a question of 100 words takes about 2 kB meanwhile."""

MOST_SHARED = 200
"""Questions that are compared because of one run: in more of them it is a common phrase."""

NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


class Twin(NamedTuple):
    """A question that is much like one that stands before it."""

    number: int
    """Of the question."""
    other: int
    """Of the one before it; of a held-out one -1 and below."""
    similarity: float


def near_duplicates(questions: Iterable[str], held_out: Sequence[str], limit: float) -> list[Twin]:
    """The questions at least so similar to a held-out one, or to an earlier one that is no near duplicate.

    Two with other numbers in them are different problems, however alike their words are.
    """
    runs, numbers_of, counts = _runs([*held_out, *islice(questions, MOST_COMPARED)])
    first, found = len(held_out), []
    index: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
    for number, own in enumerate(runs):
        prefix = [run for run in own[: len(own) - math.ceil(limit * len(own)) + 1] if counts[run] > 1]
        numbers = numbers_of[number]
        best = _most_similar(number, runs, {n for run in prefix for n in index[numbers, run]}, limit)
        if best is not None and number >= first:
            other, similarity = best
            found.append(Twin(number - first, other - first, similarity))
            continue
        for run in prefix:
            if len(index[numbers, run]) < MOST_SHARED:
                index[numbers, run].append(number)
    return found


def _most_similar(
    number: int, runs: Sequence["array[int]"], candidates: set[int], limit: float
) -> tuple[int, float] | None:
    own, best = set(runs[number]), None
    for other in sorted(candidates):
        shared = sum(run in own for run in runs[other])
        similarity = shared / (len(own) + len(runs[other]) - shared)
        if similarity >= limit and (best is None or similarity > best[1]):
            best = other, similarity
    return best


def _runs(texts: Sequence[str]) -> tuple[list["array[int]"], list[int], Counter[int]]:
    """The runs of each text, rarest first, a hash of the numbers in it, and how many texts have each run."""
    counts: Counter[int] = Counter()
    runs, numbers = [], []
    for text in texts:
        words = WORD.findall(normalised(text))
        places = range(min(MOST_RUNS, max(1, len(words) - RUN + 1)))
        own = {_stable_hash(words[at : at + RUN]) for at in places}
        counts.update(own)
        runs.append(array("q", own))
        numbers.append(_stable_hash(NUMBER.findall(text)))
    return [array("q", sorted(own, key=lambda run: (counts[run], run))) for own in runs], numbers, counts


def _stable_hash(words: Sequence[str]) -> int:
    """64 bits that are the same in every process, so that a resumed run leaves out the same rows."""
    digest = blake2b(" ".join(words).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)
