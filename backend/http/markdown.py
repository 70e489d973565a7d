"""Markdown of this project's pages as HTML: raw HTML is text, and links lead to what the service shows."""

import html
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

MARKER = re.compile(r"^<!-- /?[^\n]* -->\n", re.MULTILINE)
"""The comment at which a generated table begins or ends; GitHub hides it."""
BREAKABLE = re.compile(r"(?<=[./_])(?=[a-z])")


class Passage(NamedTuple):
    """Plain text of a section, or of a table row that has an anchor."""

    anchor: str
    """Anchor of its heading or row; empty before the first section."""
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Rendered:
    """A page as HTML, with the titles and links that the frame shows beside it."""

    title: str
    body: str
    sections: list[tuple[str, str]]
    """Anchor and title of every heading of the second level."""
    passages: list[Passage]
    anchors: frozenset[str]
    links: list[str]
    """Addresses that the page leads to."""
    pictures: list[Path]


@dataclass(slots=True)
class _PageState:
    """The state of a walk through the tokens of a page."""

    path: Path
    address_of: Callable[[Path], str | None]
    title: str = ""
    sections: list[tuple[str, str]] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    pictures: list[Path] = field(default_factory=list)


def render(path: Path, address_of: Callable[[Path], str | None]) -> Rendered:
    """Return one page; `address_of` tells where the service shows a file."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.add_render_rule("code_inline", _code)
    tokens = markdown.parse(MARKER.sub("", path.read_text(encoding="utf-8")))
    reading = _PageState(path, address_of)
    _name_headings(tokens, reading)
    _name_rows(tokens, reading)
    passages = _passages(tokens)
    for token in tokens:
        if token.children:
            token.children = _rewrite_links(token.children, reading)
    rendered = markdown.renderer.render(tokens, markdown.options, {})
    # a corner without text heads nothing
    body = _wrap_in_scroll_boxes(rendered.replace("<th></th>", "<td></td>"))
    return Rendered(
        reading.title,
        body,
        reading.sections,
        passages,
        frozenset(reading.anchors),
        reading.links,
        reading.pictures,
    )


def heading_anchor(text: str) -> str:
    """Return a heading's anchor, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def _field_anchor(inline: Token, text: str) -> str:
    """Return the anchor of a heading that is a single piece of code and so names a config field: the field's
    path.
    """
    children = inline.children or []
    is_field = len(children) == 1 and children[0].type == "code_inline"
    return text if is_field else heading_anchor(text)


def _name_headings(tokens: Sequence[Token], reading: _PageState) -> None:
    for token, inline in itertools.pairwise(tokens):
        if token.type != "heading_open":
            continue
        text = "".join(child.content for child in inline.children or [])
        if token.tag == "h1":
            reading.title = reading.title or text
        if (name := _claim_anchor(_field_anchor(inline, text), reading)) and token.tag == "h2":
            reading.sections.append((name, text))
        if name:
            token.attrSet("id", name)


def _passages(tokens: Sequence[Token]) -> list[Passage]:
    """Return the texts under all headings, and of all table rows that have an anchor of their own."""
    passages: list[Passage] = []
    texts: list[list[str]] = []
    section = Passage("", "", "")

    def begin(passage: Passage) -> None:
        passages.append(passage)
        texts.append([])

    for before, token in itertools.pairwise(tokens):
        if before.type == "heading_open":
            section = Passage(
                "" if before.tag == "h1" else str(before.attrGet("id") or ""), _plain_text(token), ""
            )
            begin(section)
        elif before.type == "tr_open" and before.attrGet("id"):
            begin(Passage(str(before.attrGet("id")), str(before.attrGet("id")), ""))
        elif before.type == "table_close":
            begin(section)
        if token.type in ("inline", "fence") and before.type != "heading_open" and passages:
            texts[-1].append(_plain_text(token))
    return [
        passage._replace(text=" ".join(" ".join(words).split()))
        for passage, words in zip(passages, texts, strict=True)
        if words or passage is passages[0]
    ]


def _plain_text(token: Token) -> str:
    """Return the text of a token without marks."""
    return "".join(child.content or " " for child in token.children) if token.children else token.content


def _name_rows(tokens: Sequence[Token], reading: _PageState) -> None:
    """Give table rows an anchor: the code in their first cell."""
    row: Token | None = None
    for opened, inline in itertools.pairwise(tokens):
        if opened.type == "tr_open":
            row = opened
        if opened.type != "td_open" or not inline.children or inline.children[0].type != "code_inline":
            continue
        named, row = row or opened, None
        if len(inline.children) == 1 and (name := _claim_anchor(inline.children[0].content, reading)):
            named.attrSet("id", name)


def _claim_anchor(name: str, reading: _PageState) -> str:
    """Return the name if it is valid and unused on the page, else ""."""
    if not name or name in reading.anchors or re.search(r"\s", name):
        return ""
    reading.anchors.add(name)
    return name


def _rewrite_links(tokens: Sequence[Token], reading: _PageState) -> list[Token]:
    """Return the same words, with links that work in the service; a link to a file that it does not show is
    code.
    """
    leads: list[bool] = []
    tokens_shown: list[Token] = []
    for token in tokens:
        if token.type == "link_open":
            leads.append(_rewrite_link(token, reading))
            tokens_shown.append(token if leads[-1] else Token("code_open", "code", 1))
        elif token.type == "link_close":
            tokens_shown.append(token if leads.pop() else Token("code_close", "code", -1))
        else:
            if token.type == "image":
                _rewrite_image(token, reading)
            tokens_shown.append(token)
    return tokens_shown


def _rewrite_link(token: Token, reading: _PageState) -> bool:
    """Return whether this link leads to something that the service shows, or out to the web."""
    target = str(token.attrGet("href") or "")
    if target.startswith(("https://", "http://", "#")):
        reading.links.append(target)
        return True
    file, _, anchor = target.partition("#")
    address = reading.address_of((reading.path.parent / file).resolve())
    if address is None:
        return False
    reading.links.append(address + (f"#{anchor}" if anchor else ""))
    token.attrSet("href", reading.links[-1])
    return True


def _rewrite_image(token: Token, reading: _PageState) -> None:
    picture = (reading.path.parent / str(token.attrGet("src"))).resolve()
    reading.pictures.append(picture)
    token.attrSet("src", f"/help/pictures/{quote(picture.name)}")
    token.attrSet("loading", "lazy")


def _wrap_in_scroll_boxes(body: str) -> str:
    """Wide tables and code scroll by themselves, also by keyboard, and not with the page."""
    opened = '<div class="help-table" tabindex="0" role="group" aria-label="Table"><table>'
    body = body.replace("<table>", opened).replace("</table>", "</table></div>")
    return body.replace("<pre>", '<pre tabindex="0">')


def _code(
    _renderer: RendererHTML, tokens: Sequence[Token], index: int, _options: OptionsDict, _env: Any
) -> str:
    """Code that may be broken behind dots, slashes and underlines, if a cell is narrow."""
    return f"<code>{BREAKABLE.sub('<wbr>', html.escape(tokens[index].content))}</code>"
