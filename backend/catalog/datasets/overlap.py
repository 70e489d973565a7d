"""Find questions that repeat, or that share n-grams with held-out questions.

The n-gram overlap follows GPT-3, arXiv:2005.14165, appendix C.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from hashlib import blake2b

from backend.catalog.datasets.words import WORD_PATTERN, normalise

MAX_ROWS_PER_NGRAM = 10
"""Number of training rows above which an n-gram is ignored as a common phrase, as in GPT-3."""

Gram = tuple[str, ...]


def fingerprint(question: str) -> bytes:
    """Return a hash of the normalised question. Equal questions have equal hashes."""
    return blake2b(normalise(question).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def ngrams(question: str, n: int) -> set[Gram]:
    """Return all n-grams of words and signs. A shorter question is a single gram."""
    words = tuple(WORD_PATTERN.findall(normalise(question)))
    return {words[start : start + n] for start in range(max(1, len(words) - n + 1))} if words else set()


def find_overlapping(questions: Iterable[str], held_out: Collection[str], n: int) -> set[int]:
    """Return the indices of questions that share an n-gram with a held-out question.

    N-grams in more than MAX_ROWS_PER_NGRAM questions count only if they are a whole held-out question.
    """
    held_out_grams = {gram for question in held_out for gram in ngrams(question, n)}
    shared_by_index: dict[int, set[Gram]] = {}
    counts: Counter[Gram] = Counter()
    for index, question in enumerate(questions):
        if shared_grams := ngrams(question, n) & held_out_grams:
            shared_by_index[index] = shared_grams
            counts.update(shared_grams)
    whole_questions = {tuple(WORD_PATTERN.findall(normalise(question))) for question in held_out}
    return {
        index
        for index, shared_grams in shared_by_index.items()
        if any(counts[gram] <= MAX_ROWS_PER_NGRAM or gram in whole_questions for gram in shared_grams)
    }


def first_occurrences(questions: Iterable[str]) -> list[int]:
    """Return the index of the first occurrence of each distinct question."""
    first_indices: dict[bytes, int] = {}
    for index, question in enumerate(questions):
        first_indices.setdefault(fingerprint(question), index)
    return sorted(first_indices.values())
