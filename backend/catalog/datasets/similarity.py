"""Near duplicates: questions that say the same in almost the same words.

Similarity is the share of runs of three words that two questions have in common (Jaccard's index, as in
text-dedup and datatrove). Two questions of similarity s share one of the rarest runs of each: all but s of
them, and one more. An index of these finds every pair where MinHash would find most. Source: Bayardo et al.,
"Scaling up all pairs similarity search", WWW 2007.
"""

import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from backend.catalog.datasets.words import WORD, normalise

RUN = 3
"""Number of words and signs in a run."""

MAX_RUNS = 2_000
"""Maximum number of runs of a question; the rest of a longer question is ignored."""

MAX_QUESTIONS = 200_000
MAX_WORDS = 40_000_000
"""Maximum total number of words of the compared questions; each word takes 20 bytes of memory."""

MAX_SHARED = 500
"""Maximum number of questions that are compared because of one run; a more frequent run is a common phrase.
"""

MAX_CANDIDATES = 200
"""Maximum number of comparisons per question; those that share most of its rarest runs come first."""

MAX_KNOWN_WORDS = 1_000_000
ROUNDING = 1e-9
NUMBER = re.compile(r"\d+(?:[.,]\d+)*")


class Twin(NamedTuple):
    """A question that is much like an earlier one."""

    number: int
    """Number of the question."""
    other: int
    """Number of an earlier question; -1 and below for a held-out question."""
    similarity: float


def near_duplicates(questions: Iterable[str], held_out: Sequence[str], limit: float) -> list[Twin]:
    """Return the questions at least so similar to a held-out one, or to an earlier one that is not a near
    duplicate.

    Two with other numbers in them are different problems, however alike their words are.
    """
    runs = _shared_runs(*_hashed_runs([*held_out, *islice(questions, MAX_QUESTIONS)]))
    index, first, twins = _Index(runs, limit), len(held_out), []
    for number in range(len(runs.sizes)):
        best = index.most_similar(number)
        if best is not None and number >= first:
            earlier, similarity = best
            twins.append(Twin(number - first, earlier - first, similarity))
        else:
            index.add(number)
    return twins


class _Runs(NamedTuple):
    """Runs of words that occur in several questions."""

    ranks: NDArray[np.int32]
    """Ranks of all questions in order, the rarest first within each question; 0 is the rarest of all."""
    starts: NDArray[np.int64]
    """[questions + 1] offsets at which the runs of each question begin."""
    sizes: NDArray[np.int64]
    """[questions] number of distinct runs, including those that occur only in this question."""
    distinct: int
    """Number of different ranks."""


class _Index:
    """Questions by the rarest of their runs."""

    def __init__(self, runs: _Runs, limit: float) -> None:
        self._runs, self._limit = runs, limit
        self._by_run: defaultdict[int, array[int]] = defaultdict(lambda: array("i"))
        self._is_own = np.zeros(runs.distinct, dtype=bool)
        rarest = runs.sizes - np.ceil(limit * runs.sizes - ROUNDING).astype(np.int64) + 1
        self._indexed = np.maximum(rarest - (runs.sizes - np.diff(runs.starts)), 0)
        """[questions] how many of their shared runs are among the rarest."""

    def add(self, number: int) -> None:
        """Add a question that later questions are compared with."""
        for run in self._rarest(number):
            if len(self._by_run[run]) < MAX_SHARED:
                self._by_run[run].append(number)

    def most_similar(self, number: int) -> tuple[int, float] | None:
        """Return the most similar question, the first of equals, and its similarity; None below the limit."""
        lists = [self._by_run[run] for run in self._rarest(number) if run in self._by_run]
        if not lists:
            return None
        candidates, hits = np.unique(np.concatenate(lists), return_counts=True)
        if len(candidates) > MAX_CANDIDATES:
            candidates = np.sort(candidates[np.argsort(-hits, kind="stable")[:MAX_CANDIDATES]])
        shared = self._count_shared_runs(number, candidates)
        sizes = self._runs.sizes
        similarity = shared / (sizes[number] + sizes[candidates] - shared)
        best = int(np.argmax(similarity))
        return (int(candidates[best]), float(similarity[best])) if similarity[best] >= self._limit else None

    def _rarest(self, number: int) -> list[int]:
        start = self._runs.starts[number]
        rarest: list[int] = self._runs.ranks[start : start + self._indexed[number]].tolist()
        return rarest

    def _count_shared_runs(self, number: int, candidates: NDArray[np.int32]) -> NDArray[np.int64]:
        """[candidates] how many runs each of them shares with a question."""
        ranks, starts = self._runs.ranks, self._runs.starts
        own_ranks = ranks[starts[number] : starts[number + 1]]
        self._is_own[own_ranks] = True
        counts = starts[candidates + 1] - starts[candidates]
        begins = np.cumsum(counts) - counts
        places = np.arange(counts.sum()) + np.repeat(starts[candidates] - begins, counts)
        shared = np.add.reduceat(self._is_own[ranks[places]], begins, dtype=np.int64)
        self._is_own[own_ranks] = False
        return shared


class _WordHashes(dict[str, int]):
    """Hashes of 64 bits by word, the same in every process: a resumed run drops the same rows."""

    def __missing__(self, word: str) -> int:
        if len(self) >= MAX_KNOWN_WORDS:
            self.clear()
        digest = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        self[word] = value = int.from_bytes(digest)
        return value


def _hashed_runs(texts: Iterable[str]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the different runs of one text after the other as hashes, and how many each text has."""
    runs, sizes, words_read, hashes = [], [], 0, _WordHashes()
    for text in texts:
        words = WORD.findall(normalise(text))[: MAX_RUNS + RUN - 1]
        words_read += len(words)
        if words_read > MAX_WORDS:
            break
        words += [""] * (RUN - len(words))
        own_hashes = np.fromiter(map(hashes.__getitem__, words), dtype=np.uint64, count=len(words))
        numbers = np.uint64(hashes[" ".join(NUMBER.findall(text))])
        own_hashes = np.unique(
            _scramble(_scramble(_scramble(own_hashes[:-2]) + own_hashes[1:-1]) + own_hashes[2:]) ^ numbers
        )
        runs.append(own_hashes)
        sizes.append(len(own_hashes))
    return np.concatenate(runs) if runs else np.zeros(0, np.uint64), np.array(sizes, dtype=np.int64)


def _scramble(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return each value scrambled. Source: splitmix64, Steele et al., OOPSLA 2014."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _shared_runs(runs: NDArray[np.uint64], sizes: NDArray[np.int64]) -> _Runs:
    distinct, counts = np.unique(runs, return_counts=True)
    distinct, counts = distinct[counts > 1], counts[counts > 1]
    rank_of = np.empty(len(distinct), dtype=np.int32)
    rank_of[np.argsort(counts, kind="stable")] = np.arange(len(distinct), dtype=np.int32)
    ends, ranks = np.cumsum(sizes), [np.zeros(0, np.int32)]
    for start, end in zip(ends - sizes, ends, strict=True):
        runs_of_text = runs[start:end]
        places = np.searchsorted(distinct, runs_of_text)
        places = (
            places[np.take(distinct, places, mode="clip") == runs_of_text] if len(distinct) else places[:0]
        )
        ranks.append(np.sort(rank_of[places]))
    starts = np.cumsum([len(ranks_of_text) for ranks_of_text in ranks], dtype=np.int64)
    return _Runs(np.concatenate(ranks), starts, sizes, len(distinct))
