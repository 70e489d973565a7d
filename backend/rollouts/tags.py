"""Tags between which a completion thinks."""

OPEN, CLOSE = "<think>", "</think>"


def restore_think_tag(text: str) -> str:
    """Return a completion with the <think> that its chat template has written."""
    return f"{OPEN}{text}"
