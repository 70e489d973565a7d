"""The pages' own modules in a real browser, under the policy that the service sends.

in_browser    runs JavaScript on a module of frontend/src: in_browser("lib/text/csv.js", "m => m.csvCell(0)")
"""

import functools
import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.service import Service
from tests.browser.watched import watched

expect.set_options(timeout=120_000)  # a busy machine is slow, not wrong

FRONTEND = Path(__file__).parents[2] / "frontend"
POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; object-src 'none'; "
    "require-trusted-types-for 'script'; trusted-types grpolab default"
)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


class StaticFiles(http.server.SimpleHTTPRequestHandler):
    """frontend/ under /static, and an empty page at /."""

    def translate_path(self, path: str) -> str:
        return super().translate_path(path.removeprefix("/static"))

    def do_GET(self) -> None:
        if self.path.startswith("/static/"):
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>modules</title>")

    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def browser(chromium: Path) -> Iterator[Browser]:
    """One Chromium for the tests of a file; each opens pages of its own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium), args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def page(service: Service, browser: Browser) -> Iterator[Page]:
    """A page of the file's own service, which fails its test when a hostile text is executed."""
    with watched(browser, service.base) as page:
        yield page


@pytest.fixture(scope="session")
def module_server() -> Iterator[str]:
    handler = functools.partial(StaticFiles, directory=str(FRONTEND))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def module_page(module_server, browser) -> Iterator[Page]:
    page = browser.new_page()
    page.goto(module_server)
    yield page
    page.close()


@pytest.fixture
def in_browser(module_page):
    def run(module: str, function: str, argument: object = None) -> object:
        return module_page.evaluate(
            f"async (argument) => ({function})(await import('/static/src/{module}'), argument)",
            json.loads(json.dumps(argument)),
        )

    return run
