"""Escape untrusted text in Markdown and YAML, such as names, notes and configs."""

import json
import re
import unicodedata
from collections.abc import Iterable, Sequence

ACTIVE_PATTERN = re.compile(r"[\\`*_\[\]<>&|~$!#@]")
"""Pattern of characters that can start an inline element of Markdown, HTML, mathematics or a mention."""

LINK_PATTERN = re.compile(r"(?i)(?<=[a-z])(:)(?=//)|(?<=www)(\.)")
"""Pattern of characters without which no address becomes a link."""

FENCE_PATTERN = re.compile(r"`+")
HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Unicode categories of characters that are invisible or reorder visible text."""


def visible(text: str, *, lines: bool = False) -> str:
    """Return text with invisible characters escaped; line feeds stay if `lines` is true."""
    return "".join(
        f"\\u{ord(character):04x}"
        if unicodedata.category(character) in HIDDEN_CATEGORIES and not (lines and character == "\n")
        else character
        for character in text
    )


def inline(text: str) -> str:
    """Return text escaped for a sentence or a table cell, so that it is shown unchanged."""
    escaped_text = ACTIVE_PATTERN.sub(lambda match: "\\" + match[0], visible(text.replace("\n", " ")))
    return LINK_PATTERN.sub(lambda match: f"&#{ord(match[0])};", escaped_text)


def fence_code(text: str, language: str = "") -> str:
    """Return a code block whose fence is longer than any run of backticks in the text."""
    max_backticks = max((len(fence_text) for fence_text in FENCE_PATTERN.findall(text)), default=0)
    fence = "`" * max(3, max_backticks + 1)
    return f"{fence}{language}\n{visible(text, lines=True)}\n{fence}"


def format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table with escaped cells."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(map(inline, line) if number != 1 else line)} |" for number, line in enumerate(lines)
    )


def quote_yaml(text: str) -> str:
    """Return a YAML scalar: a JSON string of visible characters is valid in every version of YAML."""
    return json.dumps(visible(text), ensure_ascii=False)
