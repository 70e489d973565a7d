"""Test that a page consists of its view, its style and one entry in the list of pages."""

from urllib.parse import urlsplit

import pytest

from backend.http.pages import PAGES
from tests.gate import first_in_gate

MAX_REQUESTS = 30
MAX_BYTES = 700_000


@pytest.mark.parametrize("listed", first_in_gate(2, PAGES), ids=lambda listed: listed.path)
def test_a_cold_page_takes_few_requests_and_little_data(listed, page):
    paths, sizes = [], []
    page.on("request", lambda request: paths.append(urlsplit(request.url).path))
    page.on("requestfinished", lambda request: sizes.append(request.sizes()["responseBodySize"]))
    page.goto(listed.path.format(run_id="none", experiment_id="none"))
    page.locator("main :is(h1, h2)").first.wait_for()
    scripts = [path for path in paths if path.startswith("/static/") and "/src/" in path]
    assert [path.rpartition("/")[2] for path in scripts] == ["first_paint.js"]
    assert len(paths) <= MAX_REQUESTS, paths
    assert sum(sizes) <= MAX_BYTES
