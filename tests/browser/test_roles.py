"""Tests of pages as a viewer sees them: everything is readable, and no button is refused."""

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.browser.conftest import ARGUMENTS
from tests.browser.service import VIEWER_TOKEN, running_service


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running_service(tmp_path_factory.mktemp("lab")) as service:
        service.trained = service.launch("trained")
        service.train(service.trained, 4, end="finished")
        service.waiting = service.launch("waiting")
        yield service


@pytest.fixture
def page_as(service, chromium):
    """A function that opens a page logged in with a token."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium), args=ARGUMENTS)

        def logged_in(token):
            page = browser.new_context(
                base_url=service.base, viewport={"width": 1280, "height": 1000}
            ).new_page()
            page.set_default_timeout(120_000)
            page.goto("/runs")
            page.get_by_label("Token").fill(token)
            page.get_by_role("button", name="Log in").click()
            expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
            return page

        yield logged_in
        browser.close()


def press_every_button(page):
    """Press each button once, and close the dialogs and menus that open."""
    buttons = page.locator("main button:visible:enabled")
    for number in range(buttons.count()):
        if number < buttons.count():  # some buttons hide others
            buttons.nth(number).click(timeout=120_000, no_wait_after=True)
            page.keyboard.press("Escape")


@pytest.mark.nightly
def test_no_button_of_a_viewer_is_refused(page_as, service):
    page = page_as(VIEWER_TOKEN)
    rejected_urls = []
    page.on(
        "response", lambda answer: rejected_urls.append(answer.url) if answer.status in (401, 403) else None
    )
    for address in ("/queue", "/runs", f"/run/{service.trained}?tab=files"):
        page.goto(address)
        page.wait_for_load_state("networkidle")
        press_every_button(page)
    assert rejected_urls == []
    assert {run["status"] for run in service.get("/runs")["items"]} == {"finished", "queued"}


def test_a_viewer_can_read_the_pages_and_is_told_what_is_missing(page_as, service):
    page = page_as(VIEWER_TOKEN)
    expect(page.locator("header").get_by_text("viewer", exact=True)).to_be_visible()
    page.goto(f"/run/{service.waiting}")
    expect(page.get_by_role("link", name="Clone")).to_be_visible()
    assert (
        page.get_by_role("button", name="Stop").count()
        == page.get_by_role("button", name="Rename").count()
        == page.get_by_role("button", name="More").count()
        == 0
    )
    page.goto("/launch")
    expect(page.get_by_text("checked by the server")).to_be_visible()
    expect(page.get_by_role("note")).to_contain_text("You are logged in as a viewer")
    assert page.get_by_role("button", name="Launch", exact=False).count() == 0
