"""A watched page of the service, which records everything that it must not do."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Page, Request

from tests.browser.service import TOKEN

REFUSAL_MESSAGES = ("status of 400", "status of 404", "status of 409", "status of 413", "status of 422")
"""Console messages of Chromium for requests that the service refuses correctly."""

WATCH_SCRIPT = """
document.addEventListener('securitypolicyviolation',
    (event) => __report(`policy: ${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
for (const name of ['alert', 'confirm', 'prompt', 'open', 'print'])
    window[name] = (...words) => __report(`${name}: ${words.join()}`);
window.__hit = (...words) => __report(`executed: ${words.join()}`);
"""
"""A script that is installed before any script of the page. Payloads call `__hit` or `alert`."""


class Watch:
    """A record of what a page does."""

    def __init__(self, base: str) -> None:
        self.complaints: list[str] = []
        self._base = base

    def console(self, message: ConsoleMessage) -> None:
        if message.type == "error" and not any(code in message.text for code in REFUSAL_MESSAGES):
            self.complaints.append(f"console: {message.text}")

    def dialog(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def request(self, request: Request) -> None:
        if not request.url.startswith((f"{self._base}/", f"blob:{self._base}/", "data:")):
            self.complaints.append(f"request: {request.url}")

    def report(self, text: str) -> None:
        self.complaints.append(text)


_contexts: dict[tuple[Browser, str, str], tuple[BrowserContext, Watch]] = {}
"""Contexts by browser, service and options. Pages of one context share their loaded modules."""


@contextmanager
def watched_page(browser: Browser, base: str, **options: Any) -> Iterator[Page]:
    """Yield a page, and fail if anything was logged, requested, opened, blocked or executed."""
    key = (browser, base, repr(sorted(options.items())))
    if key not in _contexts:
        _contexts[key] = _new_context(browser, base, options)
    context, watch = _contexts[key]
    watch.complaints.clear()
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.on("console", watch.console)
    page.on("pageerror", lambda error: watch.report(f"page: {error}"))
    page.on("dialog", watch.dialog)
    page.on("popup", lambda popup: watch.report(f"popup: {popup.url}"))
    yield page
    page.evaluate("0")  # earlier reports have arrived
    storage_types = {"origin": base, "storageTypes": "cookies,local_storage"}
    context.new_cdp_session(page).send("Storage.clearDataForOrigin", storage_types)
    page.close()
    assert watch.complaints == [], watch.complaints


def _new_context(browser: Browser, base: str, options: dict[str, Any]) -> tuple[BrowserContext, Watch]:
    watch = Watch(base)
    defaults = {"viewport": {"width": 1280, "height": 1000}}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    context = browser.new_context(base_url=base, extra_http_headers=headers, **defaults | options)
    context.expose_function("__report", watch.report)
    context.add_init_script(WATCH_SCRIPT)
    context.on("request", watch.request)
    return context, watch
