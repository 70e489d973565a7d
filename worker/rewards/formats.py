"""Parse the format of a completion: its boxed answer and its thinking tags."""

import re
from typing import Literal

from backend.config.boxed import has_braced_box, last_boxed
from backend.rollouts.tags import CLOSE_TAG, OPEN_TAG, restore_think_tag

_NUMBER = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?(?:/\d+)?")


def lenient_answer(text: str) -> str:
    r"""Return the boxed answer, else the last number, else the complete text (the book's evaluation
    script).
    """
    boxed = last_boxed(text)
    if boxed is not None:
        return boxed
    numbers = _NUMBER.findall(text)
    return numbers[-1] if numbers else text.strip()


def boxed_format(text: str) -> float:
    r"""Return 1 if the last \boxed{} is complete and not empty, else 0."""
    return float(has_braced_box(text) and bool(last_boxed(text)))


def think_format(text: str, form: Literal["book", "strict"], *, is_opened: bool = False) -> float:
    """Return 1 if the completion reasons inside tags, else 0. If it `is_opened`, the prompt ends with
    <think>.

    The form `book` requires that the first <think> is before the first </think>, at any position and with any
    repetitions (Raschka, section 7.6). A policy that repeats empty tags forever passes too. The form `strict`
    requires that the text begins with <think>, has each tag exactly once, and continues after </think>.
    """
    text = restore_think_tag(text) if is_opened else text
    open_position, close_position = text.find(OPEN_TAG), text.find(CLOSE_TAG)
    if form == "book":
        return float(0 <= open_position < close_position)
    has_one_pair = text.count(OPEN_TAG) == text.count(CLOSE_TAG) == 1
    has_answer = bool(text[close_position + len(CLOSE_TAG) :].strip())
    return float(
        has_one_pair and text.lstrip().startswith(OPEN_TAG) and open_position < close_position and has_answer
    )
