"""Text and documents that both databases accept."""

import json
import math
import re
from collections.abc import Callable
from typing import Any

LARGEST = 2**63
"""Smallest integer that does not fit a column of 64 bits."""

DEEPEST = 50
"""Maximum nesting of a document from outside."""

DEEPEST_ANSWER = 200
"""Maximum nesting of an answer of a process, a server or a model, because code that writes or compares it
recurses.
"""


REFUSED = re.compile("[\0\ud800-\udfff]")
"""NUL, which Postgres refuses, and lone surrogates, which UTF-8 lacks."""


def clean_text(text: str) -> str:
    r"""Return `text` with characters that no database accepts as escapes: NUL as `\x00`, half a surrogate
    pair as `\ud83d`.
    """
    return REFUSED.sub(escape_character, text)


def escape_character(match: "re.Match[str]") -> str:
    """Return the matched character as a visible escape."""
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}"


def size_text(count: float) -> str:
    """Return a number of bytes as text: `34 MB`, `1.2 GB`."""
    if count < 1000:
        return f"{count:.0f} bytes"
    power = min(int(math.log10(count)) // 3, 4)
    size = count / 1000**power
    return f"{size:.{0 if size >= 10 else 1}f} {('kB', 'MB', 'GB', 'TB')[power - 1]}"


def is_too_deep(document: Any, deepest: int = DEEPEST) -> bool:
    """Return whether a JSON document is nested deeper than `deepest`, without recursion."""
    level = [document]
    for _ in range(deepest + 1):
        level = [child for node in level if isinstance(node, dict | list | tuple)
                 for child in (node.values() if isinstance(node, dict) else node)]  # fmt: skip
    return bool(level)


def read_json(text: str | bytes, *, constants: Callable[[str], float] | None = None) -> Any:
    """Return the JSON that a process, a server or a model wrote; `constants` reads NaN and infinities.

    Raises ValueError if the text is not JSON, or is nested deeper than DEEPEST_ANSWER.
    """
    try:
        answer = json.loads(text, parse_constant=constants)
    except RecursionError:
        answer = None
    else:
        if not is_too_deep(answer, DEEPEST_ANSWER):
            return answer
    raise ValueError(f"it is nested deeper than {DEEPEST_ANSWER} levels")


def unstorable(document: Any, path: str = "", depth: int = 0) -> tuple[str, str] | None:
    """Return (path, reason) of the first value of a JSON document that cannot be stored; None if all can
    be.
    """
    if depth > DEEPEST:
        return path, f"is nested deeper than {DEEPEST} levels"
    if isinstance(document, str):
        return None if document == clean_text(document) else (path, "contains NUL or an unpaired surrogate")
    if isinstance(document, int):
        return (
            None
            if abs(document) < LARGEST
            else (path, f"must be less than 2^63 in size, got {_short_number(document)}")
        )
    if isinstance(document, float):
        return None if math.isfinite(document) else (path, f"must be a finite number, got {document}")
    if isinstance(document, dict):
        parts = [(str(key), key) for key in document] + [(str(key), value) for key, value in document.items()]
    elif isinstance(document, list):
        parts = [(str(number), value) for number, value in enumerate(document)]
    else:
        return None
    problems = (unstorable(value, f"{path}.{key}" if path else key, depth + 1) for key, value in parts)
    return next((problem for problem in problems if problem), None)


def _short_number(number: int) -> str:
    """Return a number as text, or its number of digits if they are too many to show."""
    text = str(number)
    return text if len(text) <= 30 else f"{text[:12]}... of {len(text.lstrip('-'))} digits"
