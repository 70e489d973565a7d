"""Metrics of completions as texts: repetition, compression, script, structure."""

import zlib
from collections.abc import Sequence
from statistics import fmean
from typing import Literal, NamedTuple

from backend.config.boxed import last_boxed
from backend.rollouts.repetition import distinct_gram_share
from backend.rollouts.script import script_share
from backend.rollouts.tags import CLOSE, OPEN, with_opened

Structure = Literal["ok", "answerless", "polluted", "broken"]
STRUCTURES: tuple[Structure, ...] = ("ok", "answerless", "polluted", "broken")

METRICS = (
    "text/repetition",
    "text/unusual_script_frac",
    *(f"text/structure_{state}" for state in STRUCTURES),
    "text/compression",
)

TAIL_CHARS = 2048
"""Of a completion's end, which is compressed: loops are there."""


class Written(NamedTuple):
    """A completion with the prompt that it answers."""

    prompt: str
    text: str
    is_truncated: bool
    """Cut at the cap; where nobody knows, True: an open tag is no fault then."""
    is_opened: bool = False
    """Whether its prompt ends with <think>."""


def text_metrics(written: Sequence[Written], *, script_chars: int | None = None) -> dict[str, float]:
    """text/* over some completions.

    `script_chars`: so many at the end of each prompt and completion are read for their script.
    """
    if not written:
        return {}
    states = [
        structure(with_opened(text) if is_opened else text, is_truncated=is_truncated)
        for _, text, is_truncated, is_opened in written
    ]
    tails = [each.text[-TAIL_CHARS:].encode("utf-8", "surrogatepass") for each in written]
    raw = sum(map(len, tails))
    start = None if script_chars is None else -script_chars
    metrics = {
        "text/repetition": 1 - fmean(distinct_gram_share(each.text) for each in written),
        "text/unusual_script_frac": fmean(
            _unusual(each.prompt[start:], each.text[start:]) for each in written
        ),
        **{f"text/structure_{state}": states.count(state) / len(states) for state in STRUCTURES},
    }
    if raw:
        metrics["text/compression"] = sum(len(zlib.compress(tail, 1)) for tail in tails) / raw
    return metrics


def structure(text: str, *, is_truncated: bool) -> Structure:
    r"""State of a completion's thinking tags and of its boxed answer.

    broken: ended by the policy with a tag that lacks its partner, or that closes before it opens.
    polluted: more than one pair of tags. answerless: no complete \boxed{}. ok: all others.
    A completion that was cut at the cap before it closed its tags is answerless.
    """
    opened, closed = text.count(OPEN), text.count(CLOSE)
    if opened != closed or (opened and text.find(CLOSE) < text.find(OPEN)):
        return "answerless" if is_truncated and opened == closed + 1 == 1 else "broken"
    if opened > 1:
        return "polluted"
    return "answerless" if last_boxed(text) is None else "ok"


def _unusual(prompt: str, text: str) -> float:
    """Share of the letters outside of the prompt's script; ASCII has one script only."""
    return 0.0 if prompt.isascii() and text.isascii() else 1 - script_share(prompt, text)
