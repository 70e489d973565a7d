"""Render Markdown pages of this project as HTML; raw HTML is escaped, and links point to served pages."""

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

MARKER_PATTERN = re.compile(r"^<!-- /?[^\n]* -->\n", re.MULTILINE)
"""Pattern of the comment at the start or end of a generated table, which GitHub hides."""
BREAKABLE_PATTERN = re.compile(r"(?<=[./_])(?=[a-z])")


class Passage(NamedTuple):
    """The plain text of a section, or of a table row with an anchor."""

    anchor: str
    """Anchor of the heading or row; empty before the first section."""
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Rendered:
    """A page as HTML, with the titles and links that the frame shows next to it."""

    title: str
    body: str
    sections: list[tuple[str, str]]
    """Anchor and title of every second-level heading."""
    passages: list[Passage]
    anchors: frozenset[str]
    links: list[str]
    """Addresses of the links on the page."""
    pictures: list[Path]


@dataclass(slots=True)
class _PageState:
    """The state of rendering a page."""

    path: Path
    find_address: Callable[[Path], str | None]
    title: str = ""
    sections: list[tuple[str, str]] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    pictures: list[Path] = field(default_factory=list)


def render(path: Path, find_address: Callable[[Path], str | None]) -> Rendered:
    """Return a rendered page; `find_address` returns the address under which the service shows a file."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable("table")
    markdown.add_render_rule("code_inline", _code)
    tokens = markdown.parse(MARKER_PATTERN.sub("", path.read_text(encoding="utf-8")))
    state = _PageState(path, find_address)
    _name_headings(tokens, state)
    _name_rows(tokens, state)
    passages = _passages(tokens)
    for token in tokens:
        if token.children:
            token.children = _rewrite_links(token.children, state)
    body_html = markdown.renderer.render(tokens, markdown.options, {})
    # an empty corner cell is not a header
    body = _wrap_in_scroll_boxes(body_html.replace("<th></th>", "<td></td>"))
    return Rendered(
        state.title,
        body,
        state.sections,
        passages,
        frozenset(state.anchors),
        state.links,
        state.pictures,
    )


def heading_anchor(text: str) -> str:
    """Return the anchor of a heading in the format of GitHub."""
    return re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")


def _field_anchor(inline: Token, text: str) -> str:
    """Return the anchor of a heading; for a config field, which is a single piece of code, it is its path."""
    children = inline.children or []
    is_field = len(children) == 1 and children[0].type == "code_inline"
    return text if is_field else heading_anchor(text)


def _name_headings(tokens: Sequence[Token], state: _PageState) -> None:
    for token, inline in itertools.pairwise(tokens):
        if token.type != "heading_open":
            continue
        text = "".join(child.content for child in inline.children or [])
        if token.tag == "h1":
            state.title = state.title or text
        if (name := _claim_anchor(_field_anchor(inline, text), state)) and token.tag == "h2":
            state.sections.append((name, text))
        if name:
            token.attrSet("id", name)


def _passages(tokens: Sequence[Token]) -> list[Passage]:
    """Return the texts below all headings, and those of all table rows with an anchor."""
    passages: list[Passage] = []
    texts: list[list[str]] = []
    section = Passage("", "", "")

    def begin_passage(passage: Passage) -> None:
        passages.append(passage)
        texts.append([])

    for previous, token in itertools.pairwise(tokens):
        if previous.type == "heading_open":
            section = Passage(
                "" if previous.tag == "h1" else str(previous.attrGet("id") or ""), _plain_text(token), ""
            )
            begin_passage(section)
        elif previous.type == "tr_open" and previous.attrGet("id"):
            begin_passage(Passage(str(previous.attrGet("id")), str(previous.attrGet("id")), ""))
        elif previous.type == "table_close":
            begin_passage(section)
        if token.type in ("inline", "fence") and previous.type != "heading_open" and passages:
            texts[-1].append(_plain_text(token))
    return [
        passage._replace(text=" ".join(" ".join(passage_texts).split()))
        for passage, passage_texts in zip(passages, texts, strict=True)
        if passage_texts or passage is passages[0]
    ]


def _plain_text(token: Token) -> str:
    """Return the text of a token without markup."""
    return "".join(child.content or " " for child in token.children) if token.children else token.content


def _name_rows(tokens: Sequence[Token], state: _PageState) -> None:
    """Use the code in the first cell of a table row as its anchor."""
    row: Token | None = None
    for token, inline in itertools.pairwise(tokens):
        if token.type == "tr_open":
            row = token
        if token.type != "td_open" or not inline.children or inline.children[0].type != "code_inline":
            continue
        named_token, row = row or token, None
        if len(inline.children) == 1 and (name := _claim_anchor(inline.children[0].content, state)):
            named_token.attrSet("id", name)


def _claim_anchor(name: str, state: _PageState) -> str:
    """Return the name if it is valid and unused on the page, otherwise an empty string."""
    if not name or name in state.anchors or re.search(r"\s", name):
        return ""
    state.anchors.add(name)
    return name


def _rewrite_links(tokens: Sequence[Token], state: _PageState) -> list[Token]:
    """Return the tokens with links that work in the service; links to files that it does not show become
    code.
    """
    is_link_stack: list[bool] = []
    result: list[Token] = []
    for token in tokens:
        if token.type == "link_open":
            is_link_stack.append(_rewrite_link(token, state))
            result.append(token if is_link_stack[-1] else Token("code_open", "code", 1))
        elif token.type == "link_close":
            result.append(token if is_link_stack.pop() else Token("code_close", "code", -1))
        else:
            if token.type == "image":
                _rewrite_image(token, state)
            result.append(token)
    return result


def _rewrite_link(token: Token, state: _PageState) -> bool:
    """Rewrite a link and return whether it leads to a served page or to the web."""
    target = str(token.attrGet("href") or "")
    if target.startswith(("https://", "http://", "#")):
        state.links.append(target)
        return True
    file, _, anchor = target.partition("#")
    address = state.find_address((state.path.parent / file).resolve())
    if address is None:
        return False
    state.links.append(address + (f"#{anchor}" if anchor else ""))
    token.attrSet("href", state.links[-1])
    return True


def _rewrite_image(token: Token, state: _PageState) -> None:
    picture = (state.path.parent / str(token.attrGet("src"))).resolve()
    state.pictures.append(picture)
    token.attrSet("src", f"/help/pictures/{quote(picture.name)}")
    token.attrSet("loading", "lazy")


def _wrap_in_scroll_boxes(body: str) -> str:
    """Wrap wide tables and code, so that they scroll separately from the page, also by keyboard."""
    opening_tags = '<div class="help-table" tabindex="0" role="group" aria-label="Table"><table>'
    body = body.replace("<table>", opening_tags).replace("</table>", "</table></div>")
    return body.replace("<pre>", '<pre tabindex="0">')


def _code(
    _renderer: RendererHTML, tokens: Sequence[Token], index: int, _options: OptionsDict, _env: Any
) -> str:
    """Return code that can be wrapped after dots, slashes and underscores in narrow cells."""
    return f"<code>{BREAKABLE_PATTERN.sub('<wbr>', html.escape(tokens[index].content))}</code>"
