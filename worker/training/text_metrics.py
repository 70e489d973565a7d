"""Metrics of a step's completions as texts: repetition, compression, script, structure."""

import zlib
from collections.abc import Sequence
from statistics import fmean
from typing import Literal

from backend.config.boxed import last_boxed
from backend.rollouts.repetition import distinct_gram_share
from worker.rewards.formats import CLOSE, OPEN, with_opened
from worker.rewards.language import script_share
from worker.types import Group

Structure = Literal["ok", "answerless", "polluted", "broken"]
STRUCTURES: tuple[Structure, ...] = ("ok", "answerless", "polluted", "broken")

TAIL_CHARS = 2048
"""Of a completion's end, which is compressed: loops are there."""


def text_metrics(groups: Sequence[Group], *, opens_think: bool = False) -> dict[str, float]:
    """text/* over all completions of a step; `opens_think`: every prompt ends with <think>."""
    pairs = [(group.prompt.text, completion) for group in groups for completion in group.completions]
    texts = [completion.text for _, completion in pairs]
    states = [
        structure(
            with_opened(completion.text) if opens_think else completion.text,
            is_truncated=completion.is_truncated,
        )
        for _, completion in pairs
    ]
    tails = [text[-TAIL_CHARS:].encode("utf-8", "surrogatepass") for text in texts]
    raw = sum(map(len, tails))
    metrics = {
        "text/repetition": 1 - fmean(map(distinct_gram_share, texts)),
        "text/unusual_script_frac": fmean(_unusual(prompt, completion.text) for prompt, completion in pairs),
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
