"""Reading a completion's form: its boxed answer and its thinking tags."""

import re
from typing import Literal

OPEN, CLOSE = "<think>", "</think>"
_BOX = re.compile(
    r"\\boxed(?:\s*(?P<brace>\{)|\s{1,8}(?P<bare>[+-]?\d[\d,]*(?:\.\d+)?(?:/\d+)?(?!\w)|[A-Za-z](?!\w)"
    r"|[+-]?\\[a-zA-Z]{1,20}(?:\d\d|(?:\{[^{}]{1,200}\}){0,2})(?![\w{])))"
)
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
"""Also `\\{` and `\\}`, which are characters and no structure."""
_NUMBER = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?(?:/\d+)?")


def last_boxed(text: str) -> str | None:
    r"""The content of the last \\boxed{}, its braces balanced; None if there is none or it never closes.

    `\boxed 2`, as TeX allows it for one number, letter or command, holds that.
    """
    box = _last_box(text)
    if box is None or not box["brace"]:
        return box and box["bare"]
    end = _closing_brace(text, box.end())
    return None if end is None else text[box.end() : end].strip()


def lenient_answer(text: str) -> str:
    r"""The boxed answer, else the last number, else the whole text (the book's evaluation script)."""
    boxed = last_boxed(text)
    if boxed is not None:
        return boxed
    numbers = _NUMBER.findall(text)
    return numbers[-1] if numbers else text.strip()


def boxed_format(text: str) -> float:
    r"""1 when the last \boxed{} is complete and holds something, else 0."""
    box = _last_box(text)
    return float(box is not None and bool(box["brace"]) and bool(last_boxed(text)))


def think_format(text: str, form: Literal["book", "strict"], *, is_opened: bool = False) -> float:
    """1 when the completion reasons inside tags, else 0; `is_opened`: the prompt ends with the first <think>.

    book: the first <think> stands before the first </think>, wherever they are and however often they come
    again (Raschka, section 7.6). A policy that repeats empty tags for ever gets it too.
    strict: the text begins with <think>, has each tag exactly once, and goes on after </think>.
    """
    text = with_opened(text) if is_opened else text
    opened, closed = text.find(OPEN), text.find(CLOSE)
    if form == "book":
        return float(0 <= opened < closed)
    once = text.count(OPEN) == text.count(CLOSE) == 1
    answers = bool(text[closed + len(CLOSE) :].strip())
    return float(once and text.lstrip().startswith(OPEN) and opened < closed and answers)


def with_opened(text: str) -> str:
    """A completion with the <think> that its chat template has written."""
    return f"{OPEN}{text}"


def _last_box(text: str) -> re.Match[str] | None:
    last = None
    for last in _BOX.finditer(text):  # noqa: B007 - only the last is wanted, and none is kept
        pass
    return last


def _closing_brace(text: str, start: int) -> int | None:
    depth = 1
    for sign in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(sign[0], 0)
        if depth == 0:
            return sign.start()
    return None
