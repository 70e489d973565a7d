"""Run Chromium for benchmarks that open pages."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.common.service import Service

BROWSER_NAMES = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chromium-headless-shell",
)
"""Programs in order of preference. The headless shell, which is faster, is used only if no other exists."""


@contextmanager
def chromium() -> Iterator[Any]:
    """Yield a headless browser, or exit with a message if PATH has none."""
    path = next((executable for name in BROWSER_NAMES if (executable := shutil.which(name))), None)
    if path is None:
        raise SystemExit(f"none of {', '.join(BROWSER_NAMES)} is on PATH")
    from playwright.sync_api import sync_playwright

    print(f"pages in {path}", flush=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


def fresh_page(browser: Any, service: Service) -> Any:
    """Return a page with an empty cache, logged in as the operator. Closing its context closes the page."""
    headers = {"Authorization": f"Bearer {service.token}"}
    context = browser.new_context(viewport={"width": 1440, "height": 900}, extra_http_headers=headers)
    return context.new_page()
