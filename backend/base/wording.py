"""Validation messages in plain words."""

import re

WORDS = (
    ("greater than or equal to ", "at least "),
    ("less than or equal to ", "at most "),
    ("a valid integer", "a whole number"),
    ("a valid ", "a "),
)
"""Plain words by pydantic's words."""

CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def has_control(text: str) -> bool:
    """Return whether a text holds a line break or another control character, unsafe in a header."""
    return CONTROL.search(text) is not None


def plain_message(message: str) -> str:
    """`Input should be greater than or equal to 0` as `must be at least 0`; other messages in lower case."""
    text = re.sub(r"^Value error, ", "", message)
    text = text[:1].lower() + text[1:]
    requirement = text.removeprefix("input should be ")
    if requirement == text:
        return text
    for word, plain in WORDS:
        requirement = requirement.replace(word, plain)
    return f"must be {requirement}"
