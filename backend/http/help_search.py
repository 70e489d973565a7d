"""Search the help pages for sections that contain all words; matches in titles come first."""

from collections.abc import Iterable

from backend.http.help import HelpMatch
from backend.http.markdown import Passage, Rendered

MAX_WORDS = 8
EXCERPT_CHARACTERS = 160


def search(pages: Iterable[tuple[str, Rendered, float]], text: str, limit: int) -> list[HelpMatch]:
    """Return the best matches among pages with addresses and weights, best first."""
    words = text.lower().split()[:MAX_WORDS]
    if not words:
        return []
    scored_passages = [
        (_score(words, page.title, passage) * weight, address, page.title, passage)
        for address, page, weight in pages
        for passage in page.passages
        if _contains_all(words, f"{page.title} {passage.title} {passage.text}")
    ]
    scored_passages.sort(key=lambda entry: -entry[0])
    matches: dict[str, HelpMatch] = {}
    for _, page_address, page_title, passage in scored_passages:
        address = f"{page_address}#{passage.anchor}" if passage.anchor else page_address
        if len(matches) < limit and address not in matches:
            matches[address] = HelpMatch(
                address=address, page=page_title, title=passage.title, excerpt=_excerpt(words, passage.text)
            )
    return list(matches.values())


def _contains_all(words: list[str], text: str) -> bool:
    lower_text = text.lower()
    return all(word in lower_text for word in words)


def _score(words: list[str], page_title: str, passage: Passage) -> float:
    """Return how well a passage matches: words in titles count most, then their density in the text."""
    page, title, text = page_title.lower(), passage.title.lower(), passage.text.lower()
    title_score = sum(4.0 * (word in title) + 2.0 * (word in page) for word in words)
    density = sum(text.count(word) for word in words) / (len(text) + 200) * 100
    return title_score + min(density, 3.0) + (2.0 if title == " ".join(words) else 0.0)


def _excerpt(words: list[str], text: str) -> str:
    """Return the text around the first word, cut at word boundaries."""
    lower_text = text.lower()
    first_match = min((position for word in words if (position := lower_text.find(word)) >= 0), default=0)
    start = max(0, first_match - EXCERPT_CHARACTERS // 3)
    if start:
        start = text.find(" ", start) + 1
    end = start + EXCERPT_CHARACTERS
    excerpt = text[start:end] if end >= len(text) else text[start:end].rpartition(" ")[0]
    return f"{'… ' if start else ''}{excerpt}{' …' if end < len(text) else ''}"
