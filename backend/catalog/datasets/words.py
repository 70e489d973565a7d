"""Normalisation of questions for comparisons."""

import re
import unicodedata

WORD_PATTERN = re.compile(r"\w+|[^\w\s]")


def normalise(question: str) -> str:
    """Return a question in lower case with normalised Unicode and white space."""
    return " ".join(unicodedata.normalize("NFKC", question).casefold().split())
