"""The help pages in a real browser, in the design of the other pages."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.service import NARROW, TOKEN, WIDE, running
from tests.browser.test_pages import AXE


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("lab")) as service:
        yield service


@pytest.fixture(params=[NARROW, WIDE], ids=str)
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


def fits(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def test_the_help_is_reached_from_the_header_and_read(page):
    page.goto("/queue")
    menu = page.get_by_role("navigation", name="Pages", exact=True).get_by_role("link")
    labels = menu.all_inner_texts()
    menu.filter(has_text="Help").click()
    expect(page.get_by_role("heading", name="Documentation", exact=True)).to_be_visible()
    expect(menu).to_have_text(labels)
    expect(page.get_by_role("img", name="Compare")).to_be_visible()
    page.get_by_role("main").get_by_role("link", name="Methods").click()
    expect(page.get_by_role("heading", name="Fields of a run's config", exact=True)).to_be_visible()
    page.goto("/help/methods#objective.surrogate")
    expect(page.locator("[id='objective.surrogate']")).to_be_in_viewport()


@pytest.mark.nightly
@pytest.mark.parametrize("path", ["", "/methods"])
def test_a_page_fits_and_is_accessible(page, path):
    page.goto(f"/help{path}")
    assert fits(page)
    page.evaluate(f"() => {{ const trustedTypes = undefined; {AXE} }}")
    barriers = page.evaluate("axe.run()")["violations"]
    assert [(barrier["id"], barrier["nodes"][0]["html"][:200]) for barrier in barriers] == []
