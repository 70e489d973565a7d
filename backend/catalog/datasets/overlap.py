"""Questions that repeat, or that share runs of words with held-out ones.

Source of the latter: GPT-3, arXiv:2005.14165, appendix C.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from hashlib import blake2b

from backend.catalog.datasets.words import WORD, normalise

COMMON_ROWS = 10
"""Number of training rows above which an n-gram counts as a common phrase and is ignored, as for GPT-3."""

Gram = tuple[str, ...]


def fingerprint(question: str) -> bytes:
    """Return a hash of the normalised question; equal questions have equal hashes."""
    return blake2b(normalise(question).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def ngrams(question: str, n: int) -> set[Gram]:
    """Return all n-grams of words and signs; a shorter question is a single gram."""
    words = tuple(WORD.findall(normalise(question)))
    return {words[at : at + n] for at in range(max(1, len(words) - n + 1))} if words else set()


def find_overlapping(questions: Iterable[str], held_out: Collection[str], n: int) -> set[int]:
    """Return the indices of questions that share an n-gram with a held-out one; common phrases do not
    count.
    """
    held_out_grams = {gram for question in held_out for gram in ngrams(question, n)}
    shared_by_number: dict[int, set[Gram]] = {}
    counts: Counter[Gram] = Counter()
    for number, question in enumerate(questions):
        if shared := ngrams(question, n) & held_out_grams:
            shared_by_number[number] = shared
            counts.update(shared)
    whole_questions = {tuple(WORD.findall(normalise(question))) for question in held_out}
    return {
        number
        for number, shared in shared_by_number.items()
        if any(counts[gram] <= COMMON_ROWS or gram in whole_questions for gram in shared)
    }


def first_occurrences(questions: Iterable[str]) -> list[int]:
    """Return the index of the first occurrence of each question."""
    seen: dict[bytes, int] = {}
    for number, question in enumerate(questions):
        seen.setdefault(fingerprint(question), number)
    return sorted(seen.values())
