"""Prompts and completions of other trainers as plain text."""

from typing import Any

MOST_TEXT = 100_000
"""Characters of one prompt or completion; the rest is cut and reported."""


def message_text(value: Any) -> str:
    """A prompt or a completion as text: a conversation becomes its messages, one alone its content."""
    if isinstance(value, list) and value and all(isinstance(each, dict) for each in value):
        texts = [_content(each.get("content")) for each in value]
        if len(value) == 1:
            return texts[0]
        return "\n\n".join(f"{each.get('role', '')}: {text}" for each, text in zip(value, texts, strict=True))
    return value if isinstance(value, str) else "" if value is None else str(value)


def _content(value: Any) -> str:
    """The text of a message, whose content may be a list of parts."""
    if isinstance(value, list):
        return "".join(str(part.get("text") or "") for part in value if isinstance(part, dict))
    return str(value or "")
