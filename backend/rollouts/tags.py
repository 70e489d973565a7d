"""The tags that enclose the thoughts of a completion."""

OPEN_TAG, CLOSE_TAG = "<think>", "</think>"


def restore_think_tag(text: str) -> str:
    """Return a completion with the <think> tag that its chat template has written."""
    return f"{OPEN_TAG}{text}"
