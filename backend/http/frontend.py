"""Serve the frontend: one page for all addresses of the application, its scripts, and Plotly."""

import gzip
import hashlib
import html
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from mimetypes import guess_type
from pathlib import Path
from typing import Any

import zstandard
from fastapi import APIRouter, FastAPI, Request
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Mount
from starlette.staticfiles import NotModifiedResponse, StaticFiles
from starlette.types import Scope

from backend.http.bundles import APP, STYLES, bundles
from backend.http.dependencies import get_lab
from backend.http.pages import FRONTEND, HOME, PAGES, REDIRECTS, new_address

BUNDLES = "bundles"
"""Directory below /static with generated bundles, see bundles.py."""

SERVED_PATHS = (("src",), ("styles",), ("vendor",), ("favicon.svg",))
"""Paths of the frontend that are served to browsers."""

REVALIDATE_CACHING = "no-cache"
PERMANENT_CACHING = "public, max-age=31536000, immutable"

PLOTLY_BASIC = FRONTEND / "vendor" / "plotly-basic.min.js"
"""Plotly build without the charts, maps and surfaces that no page uses."""

PLOTLY_VERSION = re.compile(rb"plotly\.js .*v([0-9.]+)")
"""Pattern of Plotly's version in the first lines of a build."""

EDITION_PATTERN = re.compile(r"[0-9a-f]{16}")
"""Pattern of an edition, the first segment of a path below /static, which identifies a state of all files."""

COMPRESSOR_BY_ENCODING: dict[str, Callable[[bytes], bytes]] = {
    "zstd": zstandard.ZstdCompressor(level=12).compress,
    "gzip": gzip.compress,
}
"""Compression function by content encoding."""

router = APIRouter(include_in_schema=False)


class Scripts(StaticFiles):
    """Static files, cached permanently below `/static/<edition>/` and revalidated by ETag elsewhere.

    Files of the current edition, and bundles of any edition, are compressed once and served from memory.
    """

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file; below an older edition, return the current file without caching."""
        first_segment, _, path_below = path.partition("/")
        has_edition = EDITION_PATTERN.fullmatch(first_segment) is not None
        is_bundle = has_edition and path_below.startswith(f"{BUNDLES}/")
        if (first_segment == current_edition() or is_bundle) and scope["method"] == "GET":
            return self._cached_response(path_below, first_segment, Headers(scope=scope))
        response = await super().get_response(path_below if has_edition else path, scope)
        response.headers["Cache-Control"] = (
            PERMANENT_CACHING if first_segment == current_edition() else REVALIDATE_CACHING
        )
        return response

    def _cached_response(self, path: str, edition: str, headers: Headers) -> Response:
        encoding = _accepted_encoding(headers)
        caching = PERMANENT_CACHING if edition == current_edition() else REVALIDATE_CACHING
        file_headers = {"ETag": f'"{current_edition()}"', "Cache-Control": caching}
        if encoding:  # otherwise the middleware sets Vary
            file_headers |= {"Content-Encoding": encoding, "Vary": "Accept-Encoding"}
        content = (
            _compress_bundle(path.removeprefix(f"{BUNDLES}/"), encoding, current_edition())
            if path.startswith(f"{BUNDLES}/")
            else self._compress_path(path, encoding)
        )
        if content is None:
            raise HTTPException(404)
        response = Response(content, headers=file_headers, media_type=guess_type(path)[0])
        is_not_modified = self.is_not_modified(response.headers, headers)
        return NotModifiedResponse(response.headers) if is_not_modified else response

    def _compress_path(self, path: str, encoding: str) -> bytes | None:
        try:
            full_path, status = self.lookup_path(path)
            if status is None or not stat.S_ISREG(status.st_mode):
                return None
            return _compress_file(full_path, encoding, (status.st_mtime_ns, status.st_size))
        except OSError:  # the name is too long, or the file was deleted
            return None

    def lookup_path(self, path: str) -> tuple[str, os.stat_result | None]:
        """Look up a file of the pages; other files of the frontend, such as its checking tools, are not
        served.
        """
        return super().lookup_path(path) if Path(path).parts[:1] in SERVED_PATHS else ("", None)


def _accepted_encoding(headers: Headers) -> str:
    """Return the accepted content encoding with the smallest result; empty for no compression."""
    accepted_encodings = [coding.replace(" ", "") for coding in headers.get("accept-encoding", "").split(",")]
    return next((coding for coding in COMPRESSOR_BY_ENCODING if coding in accepted_encodings), "")


@lru_cache(maxsize=1_000)
def _compress_file(path: str, encoding: str, _stamp: tuple[int, int]) -> bytes:
    content = Path(path).read_bytes()
    return COMPRESSOR_BY_ENCODING[encoding](content) if encoding else content


@lru_cache(maxsize=100)
def _compress_bundle(name: str, encoding: str, edition: str) -> bytes | None:
    content = bundles(FRONTEND, edition).file(name)
    if content is None:
        return None
    return COMPRESSOR_BY_ENCODING[encoding](content.encode()) if encoding else content.encode()


def current_edition() -> str:
    """Return the current edition, which changes within a second after any file changes."""
    return _edition(int(time.monotonic()))


@lru_cache(maxsize=1)
def _edition(second: int) -> str:
    top = [entry for entry in os.scandir(FRONTEND) if (entry.name,) in SERVED_PATHS]
    return _digest(tuple(sorted(_files(top))))


def _files(entries: Iterable["os.DirEntry[str]"]) -> Iterator[tuple[str, int, int]]:
    """Yield path, modification time and size of all files in and below these entries."""
    for entry in entries:
        if entry.is_dir():
            yield from _files(os.scandir(entry.path))
        else:
            yield entry.path, entry.stat().st_mtime_ns, entry.stat().st_size


@lru_cache(maxsize=1)
def _digest(files: tuple[tuple[str, int, int], ...]) -> str:
    digest = hashlib.sha256()
    for path, *_ in files:
        digest.update(f"{os.path.relpath(path, FRONTEND)}\0".encode())
        digest.update(hashlib.sha256(Path(path).read_bytes()).digest())
    return digest.hexdigest()[:16]


def with_edition(page_html: str) -> str:
    """Return a page whose scripts and styles are cached by browsers until one of them changes."""
    return page_html.replace('"/static/', f'"/static/{current_edition()}/')


def serve_pages(app: FastAPI) -> None:
    """Add the frontend to the application."""
    for path in (HOME, *(page.path for page in PAGES), *REDIRECTS):
        router.add_api_route(path, _index, methods=["GET", "HEAD"])
    router.add_api_route("/vendor/plotly.min.js", plotly, methods=["GET", "HEAD"])
    router.add_api_route("/docs", _docs, methods=["GET", "HEAD"])
    app.include_router(router)
    scripts = Mount("/static", Scripts(directory=FRONTEND, check_dir=False), name="static")
    app.router.routes.insert(0, scripts)  # before all other routes, because every page loads several scripts


def is_navigation(request: Request) -> bool:
    """Return whether a browser navigates to this address, as opposed to a script that requests data."""
    is_api = request.scope["path"].startswith("/api/")
    return (
        request.method in ("GET", "HEAD") and not is_api and "text/html" in request.headers.get("accept", "")
    )


def page_response(status: int = 200, path: str = "") -> Response:
    """Return the single page, which routes by its address and shows an error for an unknown one."""
    return HTMLResponse(_index_html(path), status, headers={"Cache-Control": REVALIDATE_CACHING})


def _index_html(path: str) -> str:
    """Return index.html with the list of pages for the router and the menu, and with styles.

    It lists the scripts of the page at `path`, so that browsers can load them in parallel.
    """
    names = [APP, *(page.name for page in PAGES if page.path == path)]
    scripts = [
        *(f"{BUNDLES}/{name}.js" for name in names),
        *bundles(FRONTEND, current_edition()).libraries,
    ]
    lines = [
        f'<meta name="pages" content="{html.escape(pages_as_json())}">',
        f'<link rel="stylesheet" href="/static/{BUNDLES}/{STYLES}">',
        *(f'<link rel="modulepreload" href="/static/{script}">' for script in scripts),
        f'<script type="module" src="/static/{BUNDLES}/{APP}.js"></script>',
    ]
    index = (FRONTEND / "index.html").read_text(encoding="utf-8")
    return with_edition(index.replace("<!-- pages -->", "\n  ".join(lines)))


def pages_as_json() -> str:
    """Return the list of pages as JSON for the router and the menu of the frontend."""
    pages = [
        page._asdict() | {"script": f"/static/{current_edition()}/{BUNDLES}/{page.name}.js"} for page in PAGES
    ]
    return json.dumps(pages)


def _index(request: Request) -> Response:
    """Return the page at an address, or a redirect to its new address."""
    if address := new_address(request.scope["path"], request.query_params):
        return RedirectResponse(address)
    path = request.scope["route"].path
    return page_response(path=PAGES[0].path if path == HOME else path)


def plotly(request: Request) -> Response:
    """Return Plotly.js, compressed if the browser accepts that."""
    compressed_script, tag = _compress_plotly(get_lab(request).settings.state / "cache")
    headers = {"ETag": tag, "Cache-Control": REVALIDATE_CACHING, "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(
            compressed_script, headers=headers | {"Content-Encoding": "gzip"}, media_type="text/javascript"
        )
    return Response(gzip.decompress(compressed_script), headers=headers, media_type="text/javascript")


@cache
def _compress_plotly(directory: Path) -> tuple[bytes, str]:
    """Return the gzip-compressed script, created once per build and installation, and its ETag."""
    script = _plotly_build().read_bytes()
    compressed_file = directory / f"plotly-{hashlib.sha256(script).hexdigest()[:16]}.min.js.gz"
    if not compressed_file.is_file():
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = compressed_file.with_suffix(f".{id(script)}.draft")
        draft.write_bytes(gzip.compress(script, 6, mtime=0))
        draft.replace(compressed_file)
    compressed_script = compressed_file.read_bytes()
    return compressed_script, f'"{hashlib.sha256(compressed_script).hexdigest()[:32]}"'


def _plotly_build() -> Traversable:
    """Return the smaller basic build of Plotly.js, or the package's build if the versions differ."""
    full_build = files("plotly").joinpath("package_data", "plotly.min.js")
    return PLOTLY_BASIC if _plotly_version(PLOTLY_BASIC) == _plotly_version(full_build) else full_build


def _plotly_version(build: Traversable) -> str:
    with build.open("rb") as script:
        match = PLOTLY_VERSION.search(script.read(200))
    return match[1].decode() if match else ""


def _docs(request: Request) -> Response:
    """Return the documentation of the HTTP API as a plain page, which loads no external scripts."""
    schema = request.app.openapi()
    rows = "".join(
        _operation(method, path, operation)
        for path, operations in schema["paths"].items()
        for method, operation in operations.items()
    )
    return HTMLResponse(DOCS_PAGE.format(title=html.escape(schema["info"]["title"]), rows=rows))


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parameters = "".join(
        f"<li><code>{html.escape(parameter['name'])}</code> <small>{parameter['in']}</small> "
        f"{html.escape(_kind(parameter.get('schema', {})))} "
        f"{html.escape(parameter.get('description', ''))}</li>"
        for parameter in operation.get("parameters", [])
    )
    description = html.escape(operation.get("description") or operation.get("summary", ""))
    description = re.sub("`([^`]+)`", r"<code>\1</code>", description)
    return (
        f"<section><h2><code>{method.upper()} {html.escape(path)}</code></h2><p>{description}</p>"
        f"<ul>{parameters}</ul></section>"
    )


def _kind(schema: dict[str, Any]) -> str:
    choices = schema.get("enum")
    default = f" (default {schema['default']!r})" if schema.get("default") not in (None, "") else ""
    return (" | ".join(map(repr, choices)) if choices else str(schema.get("type", ""))) + default


DOCS_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}: HTTP interface</title>
<style>body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem }}
h2 {{ font-size: 1rem; margin: 1.6rem 0 .2rem }} ul, p {{ margin: .2rem 0 }}
section {{ overflow-wrap: anywhere }}</style>
<h1>{title}: HTTP interface</h1>
<p>Every list is <code>{{"items": [...], "next": cursor or null}}</code>, times are UTC in ISO 8601, errors
are RFC 9457 problem details. Send <code>Authorization: Bearer &lt;token&gt;</code>. The same as a machine
reads it: <a href="/openapi.json">openapi.json</a>.</p>{rows}</html>
"""
