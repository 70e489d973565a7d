"""Validation messages in plain language."""

import re

PLAIN_WORDING = (
    ("greater than or equal to ", "at least "),
    ("less than or equal to ", "at most "),
    ("a valid integer", "a whole number"),
    ("a valid ", "a "),
)
"""Pairs of pydantic's wording and the plain wording that replaces it."""

CONTROL_PATTERN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def has_control(text: str) -> bool:
    """Return whether a text has a line break or another control character, which is unsafe in a header."""
    return CONTROL_PATTERN.search(text) is not None


def plain_message(message: str) -> str:
    """Return `Input should be greater than or equal to 0` as `must be at least 0`.

    In other messages, only the first letter changes to lower case.
    """
    text = re.sub(r"^Value error, ", "", message)
    text = text[:1].lower() + text[1:]
    requirement = text.removeprefix("input should be ")
    if requirement == text:
        return text
    for original, replacement in PLAIN_WORDING:
        requirement = requirement.replace(original, replacement)
    return f"must be {requirement}"
