"""Tests of the help pages: every page is shown, every link resolves, and no other file can be read."""

import re
from html import unescape
from pathlib import Path

import pytest

from backend.http.frontend import current_edition
from backend.http.help import page_address, sources
from backend.http.markdown import render
from tests.api_client import VIEWER_TOKEN
from tests.gate import first_in_gate

BROWSER_HEADERS = {"Accept": "text/html"}
ADDRESS_BY_NAME = {name: page_address(path) or "" for name, path in sources().items()}
PAGE_PATTERN = re.compile(r"<main[^>]*>(.*)</main>", re.DOTALL)


def anchors(text: str) -> set[str]:
    return set(map(unescape, re.findall(r' id="([^"]+)"', text)))


def rendered_page(tmp_path: Path, text: str) -> str:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    return render(page, page_address).body


def test_every_page_is_shown_in_the_frame_without_inline_script(client):
    for address in ADDRESS_BY_NAME.values():
        response = client.get(address)
        assert (response.status_code, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "script-src 'self'" in response.headers["content-security-policy"], address
        scripts = re.findall(r"<script[^>]*>", response.text)
        assert scripts == [
            f'<script src="/static/{current_edition()}/src/first_paint.js">',
            f'<script type="module" src="/static/{current_edition()}/bundles/app.js">',
        ], address
        assert '<a class="brand"' in response.text, address
        assert len(PAGE_PATTERN.findall(response.text)[0]) > 200, address
        assert "&lt;!--" not in response.text, address


@pytest.mark.nightly
def test_every_link_and_picture_of_every_page_resolves(client):
    anchors_by_page = {address: anchors(client.get(address).text) for address in ADDRESS_BY_NAME.values()}
    for name, address in ADDRESS_BY_NAME.items():
        text = client.get(address).text
        for link in map(unescape, re.findall(r'(?:href|src)="([^"]+)"', text)):
            if link.startswith(("http://", "https://")):
                continue
            page, _, anchor = link.partition("#")
            page = page or address
            if page in anchors_by_page:
                assert not anchor or anchor in anchors_by_page[page], f"{name}: {link}"
            else:
                assert client.get(page).status_code == 200, f"{name}: {link}"


def test_links_between_the_pages_also_work_on_github():
    for path in sources().values():
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
            assert target.startswith("http") or (path.parent / target).exists(), f"{path.name}: {target}"


def test_raw_html_and_executable_addresses_become_text(tmp_path):
    body = rendered_page(
        tmp_path, "# T\n\n<script>alert(1)</script> <b onclick=x>b</b>\n\n[x](javascript:alert(1)) `<i>`\n"
    )
    assert not re.search(r"<(script|b|i)\b", body)
    assert "href" not in body
    assert "&lt;script&gt;" in body


def test_a_link_to_a_file_that_is_not_a_page_becomes_code(tmp_path):
    assert rendered_page(tmp_path, "See [the plan](../tests/faults/README.md).") == (
        "<p>See <code>the plan</code>.</p>\n"
    )


@pytest.mark.parametrize(
    "path",
    first_in_gate(
        3,
        [
            "nothing",
            "..%2fREADME",
            "%2e%2e/%2e%2e/etc/passwd",
            "..%2f..%2fetc%2fpasswd",
            "decisions/..%2fsecurity",
            "decisions/%2e%2e%2f%2e%2e%2fREADME",
            "pictures/..%2fcompare.png",
            "pictures/nothing.png",
            "security.md",
        ],
    ),
)
def test_an_unknown_page_is_a_problem_document(client, path):
    response = client.get(f"/help/{path}", headers=BROWSER_HEADERS)
    assert response.status_code == 404
    is_problem = response.headers["content-type"] == "application/problem+json"
    assert is_problem or '<div id="app">' in response.text


def test_a_viewer_reads_the_pages_and_a_stranger_does_not(client):
    for path in ("/help", "/help/security", "/help/decisions", "/help/pictures/compare.png"):
        assert client.get(path, headers={"Authorization": f"Bearer {VIEWER_TOKEN}"}).status_code == 200
        assert client.get(path, headers={"Authorization": ""}).status_code == 401


def test_a_search_matches_all_words_in_sections_and_rows_and_escapes_the_query(client):
    (first, *_) = client.get("/api/v1/help", params={"query": "optimizer.lr"}).json()["items"]
    assert (first["address"], first["title"]) == (
        "/help/methods?find=optimizer.lr#optimizer.lr",
        "optimizer.lr",
    )
    page = client.get("/help/search", params={"query": "onset verdict"}).text
    assert re.search(r'<li><a href="/help/diagnosis[?]find=onset[+]verdict#[^"]+">', page)
    for query in ("<script>x</script>", "zzqqxx", "", "a " * 90):
        response = client.get("/help/search", params={"query": query})
        assert response.status_code == 200
        assert "<script>x" not in response.text
    assert "No section contains “zzqqxx”." in client.get("/help/search", params={"query": "zzqqxx"}).text
    assert client.get("/help/search", params={"query": "x" * 201}).status_code == 422
