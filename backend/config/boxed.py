r"""The last \boxed{} of a text, which holds the answer of a solution or completion."""

import re

_BOX = re.compile(r"\\boxed\s*\{")
_LETTER_ENDS = r"(?=[ \t]*(?:\n|\Z|[.,;:!?$)\]}<]|\\[)\]]))"
_ENDS_HERE = r"(?![\w{(]|\s*(?:[-+*/^=<>!_]|\\(?:cdot|times|div|pm|mp|[dt]?frac|sqrt|pi|over)(?![a-zA-Z])))"
_BARE_BOX = re.compile(
    rf"\\boxed\s{{1,8}}(?:(?P<number>(?>[+-]?\d(?:[\d,]*\d)?(?:\.\d+)?(?:/\d+)?)){_ENDS_HERE}"
    rf"|(?P<letter>[A-Za-z]){_LETTER_ENDS}"
    r"|(?P<command>[+-]?\\[a-zA-Z]{1,20}(?:\d\d|(?:\{[^{}]{1,200}\}){0,2}))"
    rf"{_ENDS_HERE})"
)
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
"""Also `\\{` and `\\}`, which are characters and no structure."""


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last \\boxed{}, its braces balanced; None if there is none or it never
    closes.

    `\boxed 2`, as TeX allows it for one number, letter or command, counts in a text without braces behind
    any box, and only where the answer ends with it: `\boxed 2 + 3` and `\boxed a number` hold nothing.
    """
    box = _last_match(_BOX, text)
    if box is None:
        bare = _last_match(_BARE_BOX, text)
        return bare and bare[bare.lastgroup or 0]
    end = _closing_brace(text, box.end())
    return None if end is None else text[box.end() : end].strip()


def has_braced_box(text: str) -> bool:
    r"""Return whether any \\boxed of a text has an opening brace."""
    return _BOX.search(text) is not None


def _last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the last match of a pattern; none before it is kept."""
    last = None
    for last in pattern.finditer(text):  # noqa: B007 - only the last is wanted
        pass
    return last


def _closing_brace(text: str, start: int) -> int | None:
    depth = 1
    for sign in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(sign[0], 0)
        if depth == 0:
            return sign.start()
    return None
