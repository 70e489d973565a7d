"""Find near duplicates, which are questions with almost the same words.

The similarity of two questions is the Jaccard index of their runs of three consecutive words, as in
text-dedup and datatrove. If n runs of a question are sorted by rarity, two questions of similarity s always
share one of the rarest n - ceil(s n) + 1 runs of each. An index of these runs therefore finds every pair,
while MinHash would only find most of them. Source: Bayardo et al., "Scaling up all pairs similarity search",
WWW 2007.
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

from backend.catalog.datasets.words import WORD_PATTERN, normalise

RUN_WORDS = 3
"""Number of words and signs in a run."""

MAX_RUNS = 2_000
"""Maximum number of runs of a question. The rest of a longer question is ignored."""

MAX_QUESTIONS = 200_000
MAX_WORDS = 40_000_000
"""Maximum total number of words of the compared questions. Each word takes 20 bytes of memory."""

MAX_QUESTIONS_PER_RUN = 500
"""Maximum number of questions that are indexed by one run, because a more frequent run is a common phrase."""

MAX_CANDIDATES = 200
"""Maximum number of comparisons per question. Questions that share most of its rarest runs come first."""

MAX_CACHED_WORDS = 1_000_000
ROUNDING_TOLERANCE = 1e-9
NUMBER_PATTERN = re.compile(r"\d+(?:[.,]\d+)*")


class NearDuplicate(NamedTuple):
    """A question that is similar to an earlier or held-out question."""

    number: int
    """Index of the question."""
    other_number: int
    """Index of the earlier question, or a negative index into the held-out questions."""
    similarity: float


def near_duplicates(questions: Iterable[str], held_out: Sequence[str], limit: float) -> list[NearDuplicate]:
    """Return the questions whose similarity to a held-out or earlier question is at least `limit`.

    Earlier questions that are near duplicates themselves are not compared. Questions that contain different
    numbers are never similar, because they are different problems.
    """
    runs = _shared_runs(*_hashed_runs([*held_out, *islice(questions, MAX_QUESTIONS)]))
    index, first_question, duplicates = _Index(runs, limit), len(held_out), []
    for number in range(len(runs.sizes)):
        best = index.most_similar(number)
        if best is not None and number >= first_question:
            earlier, similarity = best
            duplicates.append(NearDuplicate(number - first_question, earlier - first_question, similarity))
        else:
            index.add(number)
    return duplicates


class _Runs(NamedTuple):
    """The runs of words that occur in several questions, by their rank of rarity."""

    ranks: NDArray[np.int32]
    """Ranks of the runs of all questions, the rarest first within each question. Rank 0 is the rarest run."""
    starts: NDArray[np.int64]
    """Offsets at which the runs of each question begin, of shape [questions + 1]."""
    sizes: NDArray[np.int64]
    """Number of distinct runs of each question, including unique ones, of shape [questions]."""
    distinct: int
    """Number of distinct ranks."""


class _Index:
    """An index of questions by their rarest runs."""

    def __init__(self, runs: _Runs, limit: float) -> None:
        self._runs, self._limit = runs, limit
        self._by_run: defaultdict[int, array[int]] = defaultdict(lambda: array("i"))
        self._is_own = np.zeros(runs.distinct, dtype=bool)
        prefix_sizes = runs.sizes - np.ceil(limit * runs.sizes - ROUNDING_TOLERANCE).astype(np.int64) + 1
        self._indexed = np.maximum(prefix_sizes - (runs.sizes - np.diff(runs.starts)), 0)
        """Number of indexed runs of each question, which are the rarest ones, of shape [questions]."""

    def add(self, number: int) -> None:
        """Add a question that later questions are compared with."""
        for run in self._find_rarest_runs(number):
            if len(self._by_run[run]) < MAX_QUESTIONS_PER_RUN:
                self._by_run[run].append(number)

    def most_similar(self, number: int) -> tuple[int, float] | None:
        """Return the most similar indexed question and its similarity, or None below the limit.

        Of equally similar questions, the first one is returned.
        """
        lists = [self._by_run[run] for run in self._find_rarest_runs(number) if run in self._by_run]
        if not lists:
            return None
        candidates, shared_counts = np.unique(np.concatenate(lists), return_counts=True)
        if len(candidates) > MAX_CANDIDATES:
            candidates = np.sort(candidates[np.argsort(-shared_counts, kind="stable")[:MAX_CANDIDATES]])
        shared_run_counts = self._count_shared_runs(number, candidates)
        sizes = self._runs.sizes
        similarity = shared_run_counts / (sizes[number] + sizes[candidates] - shared_run_counts)
        best = int(np.argmax(similarity))
        return (int(candidates[best]), float(similarity[best])) if similarity[best] >= self._limit else None

    def _find_rarest_runs(self, number: int) -> list[int]:
        start = self._runs.starts[number]
        rarest_ranks: list[int] = self._runs.ranks[start : start + self._indexed[number]].tolist()
        return rarest_ranks

    def _count_shared_runs(self, number: int, candidates: NDArray[np.int32]) -> NDArray[np.int64]:
        """Return the number of runs that each candidate shares with a question, of shape [candidates]."""
        ranks, starts = self._runs.ranks, self._runs.starts
        question_ranks = ranks[starts[number] : starts[number + 1]]
        self._is_own[question_ranks] = True
        counts = starts[candidates + 1] - starts[candidates]
        run_offsets = np.cumsum(counts) - counts
        positions = np.arange(counts.sum()) + np.repeat(starts[candidates] - run_offsets, counts)
        shared_run_counts = np.add.reduceat(self._is_own[ranks[positions]], run_offsets, dtype=np.int64)
        self._is_own[question_ranks] = False
        return shared_run_counts


class _WordHashes(dict[str, int]):
    """64-bit hashes by word, equal in every process so that a resumed run drops the same rows."""

    def __missing__(self, word: str) -> int:
        if len(self) >= MAX_CACHED_WORDS:
            self.clear()
        digest = blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        self[word] = value = int.from_bytes(digest)
        return value


def _hashed_runs(texts: Iterable[str]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Return the hashes of the distinct runs of all texts, concatenated, and their number in each text."""
    runs, sizes, words_read, hashes = [], [], 0, _WordHashes()
    for text in texts:
        words = WORD_PATTERN.findall(normalise(text))[: MAX_RUNS + RUN_WORDS - 1]
        words_read += len(words)
        if words_read > MAX_WORDS:
            break
        words += [""] * (RUN_WORDS - len(words))
        text_hashes = np.fromiter(map(hashes.__getitem__, words), dtype=np.uint64, count=len(words))
        numbers = np.uint64(hashes[" ".join(NUMBER_PATTERN.findall(text))])
        text_hashes = np.unique(
            _scramble(_scramble(_scramble(text_hashes[:-2]) + text_hashes[1:-1]) + text_hashes[2:]) ^ numbers
        )
        runs.append(text_hashes)
        sizes.append(len(text_hashes))
    return np.concatenate(runs) if runs else np.zeros(0, np.uint64), np.array(sizes, dtype=np.int64)


def _scramble(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return pseudorandom values for the input values. Source: splitmix64, Steele et al., OOPSLA 2014."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _shared_runs(runs: NDArray[np.uint64], sizes: NDArray[np.int64]) -> _Runs:
    distinct, counts = np.unique(runs, return_counts=True)
    distinct, counts = distinct[counts > 1], counts[counts > 1]
    rank_by_run = np.empty(len(distinct), dtype=np.int32)
    rank_by_run[np.argsort(counts, kind="stable")] = np.arange(len(distinct), dtype=np.int32)
    end_offsets, ranks = np.cumsum(sizes), [np.zeros(0, np.int32)]
    for start, end in zip(end_offsets - sizes, end_offsets, strict=True):
        text_runs = runs[start:end]
        positions = np.searchsorted(distinct, text_runs)
        positions = (
            positions[np.take(distinct, positions, mode="clip") == text_runs]
            if len(distinct)
            else positions[:0]
        )
        ranks.append(np.sort(rank_by_run[positions]))
    starts = np.cumsum([len(text_ranks) for text_ranks in ranks], dtype=np.int64)
    return _Runs(np.concatenate(ranks), starts, sizes, len(distinct))
