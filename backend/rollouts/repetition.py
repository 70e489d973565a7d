"""Repetition of a completion: the share of its end that repeats earlier text."""

WINDOW_CHARS = 512
GRAM_CHARS = 8
MIN_CHARS = 32


def distinct_gram_share(text: str) -> float:
    """Share of different 8-character pieces among those of the last 512 characters; 1 for short texts.

    Degenerate policies loop until they are cut, so the end tells. Plain prose has about 0.9, `abc` for ever
    3 pieces of 505.
    """
    tail = text[-WINDOW_CHARS:]
    if len(tail) < MIN_CHARS:
        return 1.0
    count = len(tail) - GRAM_CHARS + 1
    return len({tail[at : at + GRAM_CHARS] for at in range(count)}) / count
