"""A page is its view, its style and one entry in the list of pages."""

import re
from urllib.parse import urlsplit

import pytest

from backend.http.pages import PAGES
from tests.gate import first_in_gate

MODULE = re.compile(r"/static/\w+/(src|vendor)/(?!first_paint).*\.js")
PRELOAD = re.compile(r'<link rel="modulepreload" href="([^"]+)">')


@pytest.mark.parametrize("listed", first_in_gate(2, PAGES), ids=lambda listed: listed.path)
def test_a_page_names_the_modules_that_it_loads(listed, page):
    named, loaded = set(), set()

    def without_names(route):
        answer = route.fetch(max_retries=2)  # an idle connection may have just been closed
        named.update(PRELOAD.findall(answer.text()))
        route.fulfill(response=answer, body=PRELOAD.sub("", answer.text()))

    address = listed.path.format(run_id="none")
    page.route(f"**{address}", without_names)
    page.on("request", lambda request: loaded.add(urlsplit(request.url).path))
    page.goto(address)
    page.locator("main :is(h1, h2)").first.wait_for()
    assert len(named) > 20
    assert named == {path for path in loaded if MODULE.fullmatch(path)}
