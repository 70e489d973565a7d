"""Tests of the help pages in a real browser."""

import pytest
from playwright.sync_api import expect

from tests.browser.service import NARROW_VIEWPORT, TOKEN, WIDE_VIEWPORT


@pytest.fixture(params=[NARROW_VIEWPORT, WIDE_VIEWPORT], ids=str)
def page(request, service, browser):
    width, scheme = request.param
    complaints = []
    context = browser.new_context(
        base_url=service.base,
        color_scheme=scheme,
        viewport={"width": width, "height": 900},
        extra_http_headers={"Authorization": f"Bearer {TOKEN}"},
    )
    page = context.new_page()
    page.on("console", lambda message: complaints.append((message.type, message.text, message.location)))
    yield page
    context.close()
    assert [complaint for complaint in complaints if complaint[0] == "error"] == []


def test_the_help_is_opened_from_the_header_and_readable(page):
    page.goto("/queue")
    menu = page.get_by_role("navigation", name="Pages", exact=True).get_by_role("link")
    labels = menu.all_inner_texts()
    menu.filter(has_text="Help").click()
    expect(page.get_by_role("heading", name="Documentation", exact=True)).to_be_visible()
    expect(menu).to_have_text(labels)
    expect(page.get_by_role("img", name="Experiment page")).to_be_visible()
    page.get_by_role("main").get_by_role("link", name="Methods").click()
    expect(page.get_by_role("heading", name="Fields of a run's config", exact=True)).to_be_visible()
    page.get_by_role("searchbox", name="Search in Help").fill("reward hacking")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Search in Help")).to_be_visible()
    page.locator(".help-results a").first.click()
    page.wait_for_function("CSS.highlights.get('found')?.size > 0")
    expect(page.get_by_role("banner").get_by_role("link", name="worker")).to_be_visible()
    page.get_by_role("button", name="Theme: system").click()
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.goto("/help/methods#objective.surrogate")
    expect(page.locator("[id='objective.surrogate']")).to_be_in_viewport()
