"""Fixtures with a browser and a service for the tests of a file.

service    a running service without runs; most files make their own service with runs
browser    a Chromium
page       a page of the file's service"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.browser.service import Service, running_service
from tests.browser.watched import watched_page

expect.set_options(timeout=120_000)  # a busy machine is slow, which is not a failure

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-3d-apis",  # charts are drawn without WebGL
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="module")
def browser(chromium: Path) -> Iterator[Browser]:
    """A Chromium for the tests of a file, in which each test opens its own pages."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium), args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running_service(tmp_path_factory.mktemp("lab")) as service:
        yield service


@pytest.fixture
def page(service: Service, browser: Browser) -> Iterator[Page]:
    """A page of the file's service, which fails its test if a hostile text is executed."""
    with watched_page(browser, service.base) as page:
        yield page
