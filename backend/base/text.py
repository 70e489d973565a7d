"""Checks and conversions that make text and JSON documents acceptable to both databases."""

import json
import math
import re
from collections.abc import Callable
from typing import Any

INTEGER_LIMIT = 2**63
"""Smallest positive integer that does not fit into a 64-bit column."""

MAX_DEPTH = 50
"""Maximum nesting depth of an untrusted document."""

MAX_ANSWER_DEPTH = 200
"""Maximum nesting depth of JSON from a process, server or model, because code that handles it recurses."""


UNSTORABLE_PATTERN = re.compile("[\0\ud800-\udfff]")
"""NUL, which Postgres refuses, and lone surrogates, which UTF-8 lacks."""


def clean_text(text: str) -> str:
    r"""Escape the characters that no database accepts: NUL as `\x00`, an unpaired surrogate as `\ud83d`."""
    return UNSTORABLE_PATTERN.sub(escape_character, text)


def escape_character(match: "re.Match[str]") -> str:
    """Return the matched character as a visible escape."""
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}"


def size_text(count: float) -> str:
    """Return a number of bytes as text, such as `34 MB` or `1.2 GB`."""
    if count < 1000:
        return f"{count:.0f} bytes"
    power = min(int(math.log10(count)) // 3, 4)
    size = count / 1000**power
    return f"{size:.{0 if size >= 10 else 1}f} {('kB', 'MB', 'GB', 'TB')[power - 1]}"


def is_too_deep(document: Any, max_depth: int = MAX_DEPTH) -> bool:
    """Return whether a JSON document is nested deeper than `max_depth`, without recursion."""
    nodes = [document]
    for _ in range(max_depth + 1):
        nodes = [child for node in nodes if isinstance(node, dict | list | tuple)
                 for child in (node.values() if isinstance(node, dict) else node)]  # fmt: skip
    return bool(nodes)


def read_json(text: str | bytes, *, constants: Callable[[str], float] | None = None) -> Any:
    """Parse JSON from a process, server or model. `constants` converts NaN and infinities.

    Raises ValueError if the text is not JSON or is nested deeper than MAX_ANSWER_DEPTH.
    """
    try:
        document = json.loads(text, parse_constant=constants)
    except RecursionError:
        document = None
    else:
        if not is_too_deep(document, MAX_ANSWER_DEPTH):
            return document
    raise ValueError(f"it is nested deeper than {MAX_ANSWER_DEPTH} levels")


def find_unstorable(document: Any, path: str = "", depth: int = 0) -> tuple[str, str] | None:
    """Return (path, reason) of the first value in a document that cannot be stored, or None if all can be."""
    if depth > MAX_DEPTH:
        return path, f"is nested deeper than {MAX_DEPTH} levels"
    if isinstance(document, str):
        return None if document == clean_text(document) else (path, "contains NUL or an unpaired surrogate")
    if isinstance(document, int):
        return (
            None
            if abs(document) < INTEGER_LIMIT
            else (path, f"must be less than 2^63 in size, got {_short_number(document)}")
        )
    if isinstance(document, float):
        return None if math.isfinite(document) else (path, f"must be a finite number, got {document}")
    if isinstance(document, dict):
        children = [(str(key), key) for key in document] + [
            (str(key), value) for key, value in document.items()
        ]
    elif isinstance(document, list):
        children = [(str(number), value) for number, value in enumerate(document)]
    else:
        return None
    problems = (
        find_unstorable(value, f"{path}.{key}" if path else key, depth + 1) for key, value in children
    )
    return next((problem for problem in problems if problem), None)


def _short_number(number: int) -> str:
    """Return a number as text, shortened to its start and its number of digits if it is long."""
    text = str(number)
    return text if len(text) <= 30 else f"{text[:12]}... of {len(text.lstrip('-'))} digits"
