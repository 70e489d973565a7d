"""Parse searches in completions: words, "phrases", prefix*, `exact strings`, and -not.

    query = { ["-"] term }                 every term must match
    term  = word ["*"] | '"' words ["*"] '"' | "`" any text "`"

Words are sequences of letters and digits, compared in lower case. A term with several words, such as `don't`,
is a phrase. An exact string matches literally, with its case and punctuation; within it, two backquotes stand
for one.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backend.base.errors import FieldError, InvalidRequest
from backend.base.text import UNSTORABLE_PATTERN
from backend.storage.rollout_words import WORD_PATTERN, split_words

MAX_CHARACTERS = 1_000
MAX_TERMS = 20

BEGIN_PATTERN = re.compile(r"\s*(-?)(?=\S)")
PATTERN_BY_QUOTE = {
    '"': re.compile(r'"([^"]*)"'),
    "`": re.compile(r"`((?:[^`]|``)*)`(?!`)"),
}
PLAIN_PATTERN = re.compile(r'[^\s"`]+')

INNER_WORD_PATTERN = re.compile(r"(?<=[\0-\x7f])(?<![A-Za-z0-9])[A-Za-z0-9]+(?=[\0-\x7f])(?![A-Za-z0-9])")
"""Pattern of the complete words in an exact string, next to which the string has other characters."""


class SearchError(InvalidRequest):
    """A search that cannot be parsed; `position` is the offset of the character with the error."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__([FieldError("q", message, position)])


@dataclass(frozen=True, slots=True)
class Term:
    """A condition on the text of a completion."""

    text: str
    """The text of the term, without quotes and star."""
    is_exact: bool = False
    is_prefix: bool = False
    """Whether the last word is a prefix."""
    is_not: bool = False
    is_read: bool = False
    """Whether texts are read for the term, because using the index costs more: see `search.hits.plan_terms`.
    """

    @property
    def words(self) -> Sequence[str]:
        """The words of a phrase in order, or the words of an exact string that are certainly words of the
        text.
        """
        return (
            [word.lower() for word in INNER_WORD_PATTERN.findall(self.text)]
            if self.is_exact
            else split_words(self.text)
        )

    @property
    def whole_words(self) -> Sequence[str]:
        """The words to look up in the index: all words, or all but a prefix that is too common."""
        return self.words[:-1] if self.is_read else self.words

    def pattern(self) -> "re.Pattern[str]":
        """Return the pattern that finds the term in a text."""
        if self.is_exact:
            return re.compile(re.escape(self.text))
        words_pattern = r"[\W_]+".join(map(re.escape, self.words))
        end_pattern = r"[^\W_]*" if self.is_prefix else r"(?![^\W_])"
        return re.compile(rf"(?<![^\W_]){words_pattern}{end_pattern}", re.IGNORECASE)


def parse(text: str) -> tuple[Term, ...]:
    """Return the terms of a search, none if it is empty; raise SearchError if it is invalid."""
    if len(text) > MAX_CHARACTERS:
        reason = f"a search has at most {MAX_CHARACTERS:,} characters, got {len(text):,}"
        raise SearchError(reason, MAX_CHARACTERS)
    if unstorable := UNSTORABLE_PATTERN.search(text):
        raise SearchError("contains NUL or an unpaired surrogate", unstorable.start())
    return tuple(_terms(text))


def _terms(text: str) -> Iterator[Term]:
    position, count = 0, 0
    while prefix := BEGIN_PATTERN.match(text, position):
        is_not, position = bool(prefix[1]), prefix.end()
        count += 1
        if count > MAX_TERMS:
            raise SearchError(f"a search has at most {MAX_TERMS} terms", position)
        match = (PATTERN_BY_QUOTE.get(text[position]) or PLAIN_PATTERN).match(text, position)
        if match is None:
            name = "quotation mark" if text[position] == '"' else "backquote"
            raise SearchError(f"this {name} is not closed", position)
        yield _term(match[match.re.groups], text[position], position, is_not=is_not)
        position = match.end()


def _term(content: str, delimiter: str, offset: int, *, is_not: bool) -> Term:
    if delimiter == "`":
        if not content:
            raise SearchError("this exact string is empty", offset)
        return Term(content.replace("``", "`"), is_exact=True, is_not=is_not)
    if not WORD_PATTERN.search(content):
        reason = "has no letter or digit; put signs into backquotes to find them as they stand"
        raise SearchError(f"{content[:50]!r} {reason}", offset)
    is_prefix = content.endswith("*") and len(content) > 1 and bool(WORD_PATTERN.fullmatch(content[-2]))
    return Term(content, is_prefix=is_prefix, is_not=is_not)
