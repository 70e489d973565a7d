"""Words of a question, without what makes no difference."""

import re
import unicodedata

WORD = re.compile(r"\w+|[^\w\s]")


def normalised(question: str) -> str:
    """Return a question without what makes no difference: case, white space, forms of a character."""
    return " ".join(unicodedata.normalize("NFKC", question).casefold().split())
