"""The last box of a text, where solutions and completions put their answer."""

import re

_BOX = re.compile(
    r"\\boxed(?:\s*(?P<brace>\{)|\s{1,8}(?P<bare>[+-]?\d[\d,]*(?:\.\d+)?(?:/\d+)?(?!\w)|[A-Za-z](?!\w)"
    r"|[+-]?\\[a-zA-Z]{1,20}(?:\d\d|(?:\{[^{}]{1,200}\}){0,2})(?![\w{])))"
)
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
"""Also `\\{` and `\\}`, which are characters and no structure."""


def last_boxed(text: str) -> str | None:
    r"""The content of the last \\boxed{}, its braces balanced; None if there is none or it never closes.

    `\boxed 2`, as TeX allows it for one number, letter or command, holds that.
    """
    box = last_box(text)
    if box is None or not box["brace"]:
        return box and box["bare"]
    end = _closing_brace(text, box.end())
    return None if end is None else text[box.end() : end].strip()


def last_box(text: str) -> re.Match[str] | None:
    """The beginning of the last box, with `brace` or with the `bare` thing that it holds."""
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
