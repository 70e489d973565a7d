"""Metrics of completions as texts: repetition, compression, script and structure."""

import zlib
from collections.abc import Sequence
from statistics import fmean
from typing import Literal, NamedTuple

from backend.config.boxed import last_boxed
from backend.rollouts.repetition import distinct_gram_share
from backend.rollouts.script import script_share
from backend.rollouts.tags import CLOSE_TAG, OPEN_TAG, restore_think_tag

Structure = Literal["ok", "answerless", "polluted", "broken"]
STRUCTURES: tuple[Structure, ...] = ("ok", "answerless", "polluted", "broken")

METRICS = (
    "text/repetition",
    "text/unusual_script_frac",
    *(f"text/structure_{state}" for state in STRUCTURES),
    "text/compression",
)

TAIL_CHARS = 2048
"""Number of characters at the end of a completion that are compressed, because loops occur there."""


class WrittenCompletion(NamedTuple):
    """A completion with the prompt that it answers."""

    prompt: str
    text: str
    is_truncated: bool
    """Whether the completion was truncated at the token limit; True if unknown, so that an open tag is no
    error.
    """
    is_opened: bool = False
    """Whether the prompt ends with <think>."""


class Measures(NamedTuple):
    """Measures of a completion, from which text/* is computed."""

    distinct: float
    """Share of the n-grams that are distinct."""
    unusual: float
    state: Structure
    raw: int
    """Size of the tail in bytes."""
    compressed: int


def text_metrics(
    completions: Sequence[WrittenCompletion], *, script_chars: int | None = None
) -> dict[str, float]:
    """Return the values of text/* for some completions.

    Only `script_chars` characters at the end of each prompt and completion are checked for their script.
    """
    return average_measures([measure(completion, script_chars=script_chars) for completion in completions])


def measure(completion: WrittenCompletion, *, script_chars: int | None = None) -> Measures:
    """Return the measures of a completion."""
    prompt, text, is_truncated, is_opened = completion
    tail = text[-TAIL_CHARS:].encode("utf-8", "surrogatepass")
    start = None if script_chars is None else -script_chars
    return Measures(
        distinct=distinct_gram_share(text),
        unusual=_unusual_letter_share(prompt[start:], text[start:]),
        state=structure(restore_think_tag(text) if is_opened else text, is_truncated=is_truncated),
        raw=len(tail),
        compressed=len(zlib.compress(tail, 1)),
    )


def average_measures(completions: Sequence[Measures]) -> dict[str, float]:
    """Return the values of text/* for measured completions, whose order does not matter."""
    if not completions:
        return {}
    states = [completion.state for completion in completions]
    metrics = {
        "text/repetition": 1 - fmean(completion.distinct for completion in completions),
        "text/unusual_script_frac": fmean(completion.unusual for completion in completions),
        **{f"text/structure_{state}": states.count(state) / len(states) for state in STRUCTURES},
    }
    if raw := sum(completion.raw for completion in completions):
        metrics["text/compression"] = sum(completion.compressed for completion in completions) / raw
    return metrics


def structure(text: str, *, is_truncated: bool) -> Structure:
    r"""Return the state of a completion's thinking tags and boxed answer.

    broken: the completion is complete, but a tag lacks its partner or closes before it opens.
    polluted: there is more than one pair of tags. answerless: there is no complete \boxed{}. ok: all others.
    A completion that was truncated within its thoughts is answerless.
    """
    open_count, close_count = text.count(OPEN_TAG), text.count(CLOSE_TAG)
    if open_count != close_count or (open_count and text.find(CLOSE_TAG) < text.find(OPEN_TAG)):
        return "answerless" if is_truncated and open_count == close_count + 1 == 1 else "broken"
    if open_count > 1:
        return "polluted"
    return "answerless" if last_boxed(text) is None else "ok"


def _unusual_letter_share(prompt: str, text: str) -> float:
    """Return the share of letters that are not in the script of the prompt; 0 for ASCII texts."""
    return 0.0 if prompt.isascii() and text.isascii() else 1 - script_share(prompt, text)
