"""Foreign text in Markdown and YAML: names, notes and configs that shape nothing but their own place."""

import json
import re
import unicodedata
from collections.abc import Iterable, Sequence

ACTIVE = re.compile(r"[\\`*_\[\]<>&|~$!#@]")
"""Signs with which an inline element of Markdown, HTML, mathematics or a mention may begin."""

LINKS = re.compile(r"(?i)(?<=[a-z])(:)(?=//)|(?<=www)(\.)")
"""Signs without which no address is linked."""

FENCES = re.compile(r"`+")
HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
"""Categories of signs that are not seen, or that reorder what is seen."""


def visible(text: str, *, lines: bool = False) -> str:
    """Return text with invisible characters escaped; line feeds stay if `lines` is true."""
    return "".join(
        f"\\u{ord(sign):04x}"
        if unicodedata.category(sign) in HIDDEN and not (lines and sign == "\n")
        else sign
        for sign in text
    )


def inline(text: str) -> str:
    """Return text escaped for a sentence or a table cell, so that it is shown unchanged."""
    plain = ACTIVE.sub(lambda match: "\\" + match[0], visible(text.replace("\n", " ")))
    return LINKS.sub(lambda match: f"&#{ord(match[0])};", plain)


def fenced(text: str, language: str = "") -> str:
    """Return a block of code that no run of backticks in the text can end."""
    longest = max((len(fence_text) for fence_text in FENCES.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{visible(text, lines=True)}\n{fence}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        f"| {' | '.join(map(inline, line) if number != 1 else line)} |" for number, line in enumerate(lines)
    )


def quoted(text: str) -> str:
    """Return a YAML scalar: a JSON string of visible signs is one in every version of YAML."""
    return json.dumps(visible(text), ensure_ascii=False)
