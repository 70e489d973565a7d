"""Lift: phrases of one to four words whose frequencies differ between two sets of completions.

The counts are numbers of completions that contain a phrase, so a completion that repeats itself counts once.
If a of the n completions of the first set and b of the m completions of the second contain a phrase, and the
prior adds PRIOR completions with the frequency of both sets, w = PRIOR (a + b) / (n + m), the statistics are
(Monroe, Colaresi and Quinn 2008, "Fightin' Words", equation 16)

    log_odds = log((b + w) / (m + PRIOR - b - w)) - log((a + w) / (n + PRIOR - a - w))
    z = log_odds / sqrt(1 / (b + w) + 1 / (a + w))
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from backend.rollouts.search.matches import make_test
from backend.rollouts.search.scope import Scope
from backend.storage.completions import load_completions
from backend.storage.models import GroupTally, RolloutGroup
from backend.storage.rollout_words import split_words

PRIOR = 10.0
MAX_COUNT_DIFFERENCE = 0.2
"""Maximum difference between the counts of two phrases that overlap, as a fraction of the larger count."""
MAX_COMPARED = 2_000
"""Number of most significant phrases among which the longest are selected."""

MAX_PHRASE_WORDS = 4
MAX_COMPLETIONS = 2_000
MAX_WORDS = 400_000
"""Maximum number of words of each set; a random sample of groups is read until a limit is reached."""
MIN_COMPLETIONS = 3
"""Minimum number of completions, of both sets together, that contain a phrase."""
GROUPS_AT_ONCE = 50

_MULTIPLIER = np.uint64(0x9E37_79B9_7F4A_7C15)


@dataclass(frozen=True, slots=True)
class Sample:
    """The completions of a set that were read, split into words."""

    texts: list[list[str]]
    total: int
    """Number of stored completions of the set's steps, regardless of the filters."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """A phrase with the number of completions of each set that contain it."""

    text: str
    a: int
    b: int
    log_odds: float
    z: float


def read_sample(session: Session, scope: Scope) -> Sample:
    """Read completions of a pseudo-random sample of groups, which is the same for every call."""
    groups = list(session.scalars(select(RolloutGroup.id).where(*scope.group_conditions(session))))
    groups.sort()
    random.Random(0).shuffle(groups)
    test = make_test(session, scope, ())
    texts: list[list[str]] = []
    word_count = 0
    for start in range(0, len(groups), GROUPS_AT_ONCE):
        chunk = groups[start : start + GROUPS_AT_ONCE]
        by_group = load_completions(session, chunk)
        for completion in (member for group in sorted(chunk) for member in by_group.get(group, ())):
            if test is not None and not test(completion):
                continue
            text_words = split_words(completion.clean_text)[: MAX_WORDS - word_count]
            texts.append(text_words)
            word_count += len(text_words)
            if len(texts) >= MAX_COMPLETIONS or word_count >= MAX_WORDS:
                return Sample(texts, _count_completions(session, scope))
    return Sample(texts, _count_completions(session, scope))


def _count_completions(session: Session, scope: Scope) -> int:
    query = select(func.sum(GroupTally.completions)).where(*scope.tally_conditions(session))
    return int(session.scalar(query) or 0)


def compare_phrases(a: Sample, b: Sample, *, limit: int) -> tuple[list[Phrase], list[Phrase]]:
    """Return the phrases that are more, and those that are less frequent in the second set, most significant
    first.
    """
    phrase_counts: list[tuple[str, int, int]] = []
    if a.texts and b.texts:
        phrase_counts = _count_phrases([*a.texts, *b.texts], len(a.texts))
    n, m = len(a.texts), len(b.texts)
    scored_phrases = [score_phrase(*counts, n, m) for counts in phrase_counts]
    scored_phrases.sort(key=lambda phrase: (-abs(phrase.z), -len(phrase.text), phrase.text))
    more_frequent = _longest_phrases([phrase for phrase in scored_phrases if phrase.z > 0], limit)
    return more_frequent, _longest_phrases([phrase for phrase in scored_phrases if phrase.z < 0], limit)


def score_phrase(text: str, a: int, b: int, n: int, m: int) -> Phrase:
    """Return a phrase that `a` of `n` and `b` of `m` completions contain, with its log-odds."""
    if a + b == n + m:  # every completion contains it
        return Phrase(text, a, b, 0.0, 0.0)
    w = PRIOR * (a + b) / (n + m)
    log_odds = math.log((b + w) / (m + PRIOR - b - w)) - math.log((a + w) / (n + PRIOR - a - w))
    return Phrase(text, a, b, log_odds, log_odds / math.sqrt(1 / (b + w) + 1 / (a + w)))


def _count_phrases(texts: Sequence[Sequence[str]], count_in_a: int) -> list[tuple[str, int, int]]:
    """Return (phrase, texts among the first `count_in_a`, other texts) of each phrase in at least
    MIN_COMPLETIONS texts.
    """
    vocabulary: dict[str, int] = {}
    words = [word for text in texts for word in text]
    ids = np.array([vocabulary.setdefault(word, len(vocabulary) + 1) for word in words], np.uint64)
    text_indices = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
    phrases: list[tuple[str, int, int]] = []
    keys = ids.copy()
    for length in range(1, MAX_PHRASE_WORDS + 1):
        if length > 1:
            keys = keys[:-1] * _MULTIPLIER + ids[length - 1 :]
            keys ^= keys >> np.uint64(29)
        if not len(keys):
            break
        starts = np.flatnonzero(text_indices[: len(keys)] == text_indices[length - 1 :])
        for index, a, b in _count_keys(keys[starts], text_indices[starts], count_in_a):
            start = int(starts[index])
            phrases.append((" ".join(words[start : start + length]), a, b))
    return phrases


def _count_keys(
    keys: NDArray[np.uint64], text_indices: NDArray[Any], count_in_a: int
) -> list[tuple[int, int, int]]:
    """Return (index of first occurrence, texts among the first `count_in_a`, other texts) of each key that
    occurs in at least MIN_COMPLETIONS texts.
    """
    if not len(keys):
        return []
    order = np.lexsort((text_indices, keys))
    keys, text_indices = keys[order], text_indices[order]
    is_new_text = np.append(True, (keys[1:] != keys[:-1]) | (text_indices[1:] != text_indices[:-1]))
    keys, text_indices, order = keys[is_new_text], text_indices[is_new_text], order[is_new_text]
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    in_a = np.add.reduceat((text_indices < count_in_a).astype(np.int64), starts)
    in_all = np.diff(np.append(starts, len(keys)))
    frequent = np.flatnonzero(in_all >= MIN_COMPLETIONS)
    rows = zip(
        order[starts[frequent]].tolist(), in_a[frequent].tolist(), in_all[frequent].tolist(), strict=True
    )
    return [(index, a, total - a) for index, a, total in rows]


def _longest_phrases(phrases: Sequence[Phrase], limit: int) -> list[Phrase]:
    """Return the first phrases; of phrases that contain one another only the longest, at the position of the
    first.
    """
    selected_phrases: list[Phrase] = []
    for phrase in phrases[:MAX_COMPARED]:
        repeated_indices = [
            index
            for index, selected_phrase in enumerate(selected_phrases)
            if _overlaps(phrase, selected_phrase)
        ]
        if not repeated_indices:
            selected_phrases += [phrase] if len(selected_phrases) < limit else []
        elif all(len(phrase.text) > len(selected_phrases[index].text) for index in repeated_indices):
            selected_phrases[repeated_indices[0]] = phrase
            selected_phrases = [
                chosen_phrase
                for index, chosen_phrase in enumerate(selected_phrases)
                if index not in repeated_indices[1:]
            ]
    return selected_phrases


def _overlaps(phrase: Phrase, other: Phrase) -> bool:
    shorter_text, longer_text = sorted((phrase.text, other.text), key=len)
    return f" {shorter_text} " in f" {longer_text} " and abs(
        (phrase.a + phrase.b) - (other.a + other.b)
    ) <= MAX_COUNT_DIFFERENCE * max(phrase.a + phrase.b, other.a + other.b)
