"""Normalisation of questions before they are compared."""

import re
import unicodedata

WORD = re.compile(r"\w+|[^\w\s]")


def normalise(question: str) -> str:
    """Return a question in lower case, with Unicode and white space normalised."""
    return " ".join(unicodedata.normalize("NFKC", question).casefold().split())
