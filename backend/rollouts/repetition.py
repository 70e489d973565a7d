"""Measure how much the end of a completion repeats itself."""

WINDOW_CHARS = 512
GRAM_CHARS = 8
MIN_CHARS = 32


def distinct_gram_share(text: str) -> float:
    """Return the share of distinct 8-character substrings in the last 512 characters; 1 for short texts.

    Degenerate policies loop until they are truncated, so only the end is examined. Plain prose has a share of
    about 0.9; `abc` in a loop has 3 distinct substrings of 505.
    """
    tail = text[-WINDOW_CHARS:]
    if len(tail) < MIN_CHARS:
        return 1.0
    count = len(tail) - GRAM_CHARS + 1
    return len({tail[offset : offset + GRAM_CHARS] for offset in range(count)}) / count
