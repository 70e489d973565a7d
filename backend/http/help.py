"""The help pages, which render the files in docs/ in the frame of the application under `/help`."""

import html
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from backend.base.documented import Documented
from backend.base.errors import NotFound
from backend.base.locations import FILES_ROOT
from backend.http.frontend import pages_as_json, with_edition
from backend.http.pages import PAGES

if TYPE_CHECKING:
    from backend.http.markdown import Rendered

DOCS = FILES_ROOT / "docs"
INDEX = "README"
CURRENT_PAGE_ATTRIBUTE = ' aria-current="page"'
REVALIDATE = {"Cache-Control": "no-cache"}

MENU = "".join(f'<a href="{page.path}">{html.escape(page.label)}</a>' for page in PAGES if page.label)
"""Entries of the application's menu."""

MAX_MATCHES = 30
DECISION_WEIGHT = 0.5
"""Weight of a match in a decision; users look for how something works more often than for why."""

router = APIRouter(include_in_schema=False)
Text = Annotated[str, Query(max_length=200)]


class HelpMatch(Documented):
    """A section of a help page that contains all words of a query."""

    address: str
    page: str
    """Title of the page."""
    title: str
    """Title of the section, or of the page for text before its first section."""
    excerpt: str
    """Text around the first word."""


@router.api_route("/help", methods=["GET", "HEAD"])
def index() -> Response:
    """Return the table of contents of the help pages."""
    return _answer(INDEX)


@router.api_route("/help/search", methods=["GET", "HEAD"])
def search_page(query: Text = "") -> Response:
    """Return the sections that contain all words of a query."""
    return HTMLResponse(with_edition(_results(query.strip())), headers=REVALIDATE)


@router.api_route("/help/pictures/{name}", methods=["GET", "HEAD"])
def picture(name: str) -> Response:
    """Return a picture of a help page."""
    if (picture_path := pictures().get(name)) is None:
        raise NotFound(f"no help page shows a picture {name!r}")
    return FileResponse(picture_path, headers=REVALIDATE)


@router.api_route("/help/decisions/{name}", methods=["GET", "HEAD"])
def decision(name: str) -> Response:
    """Return the page of a decision."""
    return _answer(f"decisions/{name}")


@router.api_route("/help/{name}", methods=["GET", "HEAD"])
def page(name: str) -> Response:
    """Return a help page."""
    return RedirectResponse("/help") if name == INDEX else _answer(name)


def _answer(name: str) -> Response:
    if name not in sources():
        raise NotFound(f"there is no help page {name!r}: /help lists them")
    return HTMLResponse(with_edition(_document(name)), headers=REVALIDATE)


@cache
def sources() -> dict[str, Path]:
    """Return the files of all pages by name, read once so that no request is used as a path."""
    page_paths = sorted(DOCS.glob("*.md")) + sorted((DOCS / "decisions").glob("*.md"))
    path_by_name = {path.relative_to(DOCS).with_suffix("").as_posix(): path for path in page_paths}
    return {name.removesuffix(f"/{INDEX}"): path for name, path in path_by_name.items()}


@cache
def pictures() -> dict[str, Path]:
    """Return the existing pictures of all pages by file name."""
    picture_paths = [path for name in sources() for path in _render_page(name).pictures]
    return {path.name: path for path in picture_paths if path.is_file()}


def page_address(path: Path) -> str | None:
    """Return the address under which the service shows a file; None if the file is not a page."""
    name_by_path = {source: name for name, source in sources().items()}
    name = name_by_path.get(path)
    return name and ("/help" if name == INDEX else f"/help/{name}")


@cache
def _render_page(name: str) -> "Rendered":
    from backend.http.markdown import render  # only help pages need the parser

    return render(sources()[name], page_address)


@cache
def _document(name: str) -> str:
    rendered_page = _render_page(name)
    sections = "".join(
        f'<li><a href="#{html.escape(anchor)}">{html.escape(title)}</a></li>'
        for anchor, title in rendered_page.sections
    )
    contents = (
        f"<details open><summary>On this page</summary><ul>{sections}</ul></details>" if sections else ""
    )
    return _frame(rendered_page.title, rendered_page.body, name=name, contents=contents)


def find_matches(query: str, limit: int) -> list[HelpMatch]:
    """Return the sections that contain all words of a query, best first."""
    from backend.http.help_search import search  # only help pages need the parser

    pages = [
        (page_address(path) or "", _render_page(name), DECISION_WEIGHT if "/" in name else 1.0)
        for name, path in sources().items()
    ]
    matches = search(pages, query, limit)
    return [match.model_copy(update={"address": _with_words(match.address, query)}) for match in matches]


def _with_words(address: str, query: str) -> str:
    """Return the address of a section with the words to highlight."""
    page_address, _, anchor = address.partition("#")
    return f"{page_address}?{urlencode({'find': query})}{anchor and f'#{anchor}'}"


def _results(query: str) -> str:
    """Return the page with search results."""
    matches = find_matches(query, MAX_MATCHES)
    items = "".join(
        f'<li><a href="{html.escape(match.address)}">{html.escape(match.title)}</a>'
        f"{f' <small>{html.escape(match.page)}</small>' if match.page != match.title else ''}"
        f"<p>{html.escape(match.excerpt)}</p></li>"
        for match in matches
    )
    quoted_query = html.escape(f"“{query}”")
    summary = (
        f"Sections with {quoted_query}"
        if matches
        else f"No section contains {quoted_query}. Try fewer words."
    )
    body = f"<h1>Search in Help</h1><p>{summary if query else 'Type what you look for.'}</p>"
    return _frame("Search", f'{body}<ol class="help-results">{items}</ol>', query=query)


def _frame(title: str, body: str, *, name: str = "", contents: str = "", query: str = "") -> str:
    return PAGE.format(
        title=html.escape(title),
        menu=MENU,
        listed=html.escape(pages_as_json()),
        query=html.escape(query),
        pages=_links(name),
        contents=contents,
        body=body,
    )


def _links(current_page: str) -> str:
    titles = ((name, _render_page(name).title) for name in _ordered_names())
    return "".join(
        f'<li><a href="{page_address(sources()[name])}"'
        f"{CURRENT_PAGE_ATTRIBUTE if name == current_page else ''}>{html.escape(title)}</a></li>"
        for name, title in titles
    )


def _ordered_names() -> list[str]:
    """Return the names of the pages in the order of the index, without individual decisions."""
    name_by_address = {page_address(path): name for name, path in sources().items()}
    names = [name_by_address[link] for link in _render_page(INDEX).links if link in name_by_address]
    return [INDEX, *dict.fromkeys(names)]


PAGE = """<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>{title} · Help · GRPO Lab</title>
  <link rel="icon" href="/static/favicon.svg" type="image/svg+xml">
  <meta name="pages" content="{listed}">
  <script src="/static/src/first_paint.js"></script>
  <script type="module" src="/static/bundles/app.js"></script>
  <link rel="stylesheet" href="/static/styles/base.css">
  <link rel="stylesheet" href="/static/styles/components.css">
  <link rel="stylesheet" href="/static/styles/help.css">
</head>
<body class="help">
  <a class="skip-link" href="#content">Skip to content</a>
  <div id="frame">
    <header class="header">
      <a class="brand" href="/runs" aria-label="GRPO Lab">
        <img src="/static/favicon.svg" alt="" width="20" height="20">
        <span>GRPO Lab</span></a>
      <nav aria-label="Pages">{menu}<a href="/help" aria-current="page">Help</a></nav>
    </header>
  </div>
  <div class="help-frame">
    <nav class="help-pages" aria-label="Help pages">
      <form class="help-search" role="search" action="/help/search">
        <input class="field" type="search" name="query" aria-label="Search in Help"
          placeholder="Search in Help" maxlength="200" value="{query}">
      </form>
      <ul>{pages}</ul>
    </nav>
    <main class="help-text" id="content">{body}</main>
    <nav class="help-contents" aria-label="On this page">{contents}</nav>
  </div>
</body>
</html>
"""
