r"""Find the last \boxed{} of a text, which contains the answer of a solution or completion."""

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
"""Braces, and escaped characters such as `\\{`, which do not count as braces."""


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last \\boxed{} with balanced braces, or None if it is missing or unclosed.

    If no box of the text has braces, TeX's short form with a number, letter or command also counts, such as
    `\boxed 2`, if the expression ends after it. `\boxed 2 + 3` and `\boxed a number` have no content.
    """
    box = _last_match(_BOX, text)
    if box is None:
        bare_box = _last_match(_BARE_BOX, text)
        return bare_box and bare_box[bare_box.lastgroup or 0]
    content_end = _closing_brace(text, box.end())
    return None if content_end is None else text[box.end() : content_end].strip()


def has_braced_box(text: str) -> bool:
    r"""Return whether any \\boxed of a text has an opening brace."""
    return _BOX.search(text) is not None


def _last_match(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the last match of a pattern, without storing the matches before it."""
    match = None
    for match in pattern.finditer(text):  # noqa: B007 - only the last is wanted
        pass
    return match


def _closing_brace(text: str, start: int) -> int | None:
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return brace.start()
    return None
