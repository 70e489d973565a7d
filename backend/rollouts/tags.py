"""The tags that enclose the thoughts of a completion."""

OPEN, CLOSE = "<think>", "</think>"


def restore_think_tag(text: str) -> str:
    """Return a completion with the <think> tag that its chat template has written."""
    return f"{OPEN}{text}"
