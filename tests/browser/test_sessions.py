"""Tests of logout, the list of sessions, and the confirmation before a viewer's link replaces an operator."""

import pytest
from playwright.sync_api import expect, sync_playwright

from backend.base.settings import Settings
from backend.http.auth.permissions import Role
from backend.http.auth.tokens import login_link
from tests.browser.conftest import ARGUMENTS
from tests.browser.service import TOKEN, VIEWER_TOKEN, running_service


@pytest.fixture(scope="module")
def service_directory(tmp_path_factory):
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def service(service_directory):
    with running_service(service_directory) as service:
        yield service


@pytest.fixture
def link(service_directory, service):
    """A function that makes a fresh login link for a role."""
    port = int(service.base.rpartition(":")[2])
    settings = Settings(
        state_dir=service_directory, port=port, grpolab_token=TOKEN, grpolab_viewer_token=VIEWER_TOKEN
    )
    return lambda role: login_link(settings, role)


@pytest.fixture
def open_browser(service, chromium, link):
    """A function that opens a page in a separate browser, logged in by a link."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(chromium), args=ARGUMENTS)

        def open_page(role, width=1280, scheme="light"):
            context = browser.new_context(
                base_url=service.base, viewport={"width": width, "height": 800}, color_scheme=scheme
            )
            page = context.new_page()
            page.set_default_timeout(120_000)
            page.goto(link(role))
            expect(page.get_by_role("navigation", name="Pages")).to_be_visible()
            return page

        yield open_page
        browser.close()


def test_logging_out_shows_the_form_and_invalidates_the_cookie(open_browser):
    page = open_browser(Role.OPERATOR)
    cookies = page.context.cookies()
    page.get_by_role("button", name="Account").click()
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    page.context.add_cookies(cookies)
    page.goto("/runs")
    expect(page.get_by_label("Token")).to_be_visible()


def test_an_operator_ends_the_session_of_another_browser(open_browser):
    operator, viewer = open_browser(Role.OPERATOR), open_browser(Role.VIEWER)
    operator.get_by_role("button", name="Account").click()
    operator.get_by_role("button", name="Sessions").click()
    dialog = operator.get_by_role("dialog", name="Sessions")
    expect(dialog.get_by_text("this browser")).to_have_count(1)
    row = dialog.get_by_role("listitem").filter(has_text="viewer")
    row.get_by_role("button", name="End").click()
    expect(row).to_have_count(0)
    viewer.goto("/runs")
    expect(viewer.get_by_label("Token")).to_be_visible()
