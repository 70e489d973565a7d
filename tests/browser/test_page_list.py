"""A page is its view, its style and one entry in the list of pages."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

from backend.http.pages import PAGES
from tests.browser.service import TOKEN, running
from tests.gate import first_in_gate

ROOT = Path(__file__).parents[2]
VIEW = """
import { html } from '../dom.js';
export const View = ({ name }) => html`<h1 class="hello">Hello ${name ?? 'nobody'}</h1>`;
"""
STYLE = ".hello { color: rgb(1, 2, 3); }"
SERVICE = """
import sys
from pathlib import Path
from backend.http import pages
pages.PAGES += (pages.Page("/hello", label="Hello"), pages.Page("/hello/{name}", menu="/hello"))
from backend.http import frontend
frontend.FRONTEND = Path(sys.argv[1])
from tests.browser.service import running
with running(Path(sys.argv[2])) as service:
    print(service.base, flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.path)
def test_a_page_of_the_list_has_a_view_and_a_style(page):
    assert (ROOT / "frontend" / "src" / "views" / f"{page.name}.js").is_file()
    assert (ROOT / "frontend" / "styles" / f"{page.name}.css").is_file()
    assert bool(page.label) != bool(page.menu)


MODULE = re.compile(r"/static/\w+/(src|vendor)/(?!first_paint).*\.js")
PRELOAD = re.compile(r'<link rel="modulepreload" href="([^"]+)">')


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running(tmp_path_factory.mktemp("state")) as started:
        yield started


@pytest.mark.parametrize("listed", first_in_gate(2, PAGES), ids=lambda listed: listed.path)
def test_a_page_names_the_modules_that_it_loads(listed, page):
    named, loaded = set(), set()

    def without_names(route):
        answer = route.fetch()
        named.update(PRELOAD.findall(answer.text()))
        route.fulfill(response=answer, body=PRELOAD.sub("", answer.text()))

    address = listed.path.format(run_id="none")
    page.route(f"**{address}", without_names)
    page.on("request", lambda request: loaded.add(urlsplit(request.url).path))
    page.goto(address)
    page.locator("main :is(h1, h2)").first.wait_for()
    assert len(named) > 20
    assert named == {path for path in loaded if MODULE.fullmatch(path)}


@pytest.fixture
def service_with_another_page(tmp_path):
    frontend = tmp_path / "frontend"
    shutil.copytree(ROOT / "frontend", frontend, ignore=shutil.ignore_patterns("node_modules"))
    (frontend / "src" / "views" / "hello.js").write_text(VIEW)
    (frontend / "styles" / "hello.css").write_text(STYLE)
    (tmp_path / "state").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", SERVICE, frontend, tmp_path / "state"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process.stdout.readline().strip()
    process.communicate(timeout=60)


@pytest.mark.nightly
def test_a_page_that_is_added_to_the_list_is_reached_from_the_menu(service_with_another_page, browser):
    context = browser.new_context(extra_http_headers={"Authorization": f"Bearer {TOKEN}"})
    page = context.new_page()
    page.goto(f"{service_with_another_page}/runs")
    page.get_by_role("link", name="Hello").click()
    heading = page.get_by_role("heading", name="Hello nobody")
    expect(heading).to_have_css("color", "rgb(1, 2, 3)")
    expect(page.get_by_role("link", name="Hello")).to_have_attribute("aria-current", "page")
    page.goto(f"{service_with_another_page}/hello/Ada")
    expect(page.get_by_role("heading", name="Hello Ada")).to_be_visible()
    expect(page.get_by_role("link", name="Hello")).to_have_attribute("aria-current", "page")
    context.close()
