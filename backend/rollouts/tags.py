"""Tags between which a completion thinks."""

OPEN, CLOSE = "<think>", "</think>"


def with_opened(text: str) -> str:
    """Return a completion with the <think> that its chat template has written."""
    return f"{OPEN}{text}"
