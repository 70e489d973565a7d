"""The help pages: every page is shown, every link leads somewhere, and nothing else can be read."""

import re
from html import unescape
from pathlib import Path
from typing import Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from backend.base.settings import Settings
from backend.config.metrics import METRICS
from backend.config.presets import PRESETS
from backend.config.run import RunConfig
from backend.http.frontend import edition
from backend.http.help import DOCS, address_of, sources
from backend.http.markdown import render
from tests.api_client import VIEWER_TOKEN
from tests.gate import first_in_gate

FRONTEND = Path(__file__).parents[3] / "frontend"
GOING = {"Accept": "text/html"}
ADDRESSES = {name: address_of(path) or "" for name, path in sources().items()}
PAGE = re.compile(r"<main[^>]*>(.*)</main>", re.DOTALL)


def anchors(text: str) -> set[str]:
    return set(map(unescape, re.findall(r' id="([^"]+)"', text)))


def paths_of(model: type[BaseModel], at: str = "") -> set[str]:
    """Every dotted path of a model's fields, whatever options are chosen; tags are no fields."""
    paths = set()
    for name, field in model.model_fields.items():
        if get_origin(field.annotation) is not Literal or len(get_args(field.annotation)) > 1:
            paths.add(f"{at}{name}")
        for inner in models_in(field.annotation):
            paths |= paths_of(inner, f"{at}{name}.")
    return paths


def models_in(annotation: object) -> set[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return {annotation}
    return {model for argument in get_args(annotation) for model in models_in(argument)}


def written(tmp_path: Path, text: str) -> str:
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    return render(page, address_of).body


def test_every_page_is_shown_in_the_frame_without_inline_script(client):
    for address in ADDRESSES.values():
        answer = client.get(address)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "script-src 'self'" in answer.headers["content-security-policy"], address
        scripts = re.findall(r"<script[^>]*>", answer.text)
        assert scripts == [f'<script src="/static/{edition()}/src/first_paint.js">'], address
        assert '<a class="brand"' in answer.text, address
        assert len(PAGE.findall(answer.text)[0]) > 200, address
        assert "&lt;!--" not in answer.text, address


@pytest.mark.nightly
def test_every_link_and_picture_of_every_page_is_there(client):
    anchors_by_page = {address: anchors(client.get(address).text) for address in ADDRESSES.values()}
    for name, address in ADDRESSES.items():
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


def test_every_page_can_be_reached_from_the_index(client):
    seen, new = set(), {"/help"}
    while new:
        seen |= new
        links = {link for page in new for link in re.findall(r'href="(/help[^"#]*)', client.get(page).text)}
        new = links - seen
    assert seen == set(ADDRESSES.values())


def test_links_between_the_pages_lead_to_files_on_github_too():
    for path in sources().values():
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
            assert target.startswith("http") or (path.parent / target).exists(), f"{path.name}: {target}"


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("methods", PRESETS),
        ("metrics", METRICS),
        ("operations", [name.upper() for name in Settings.model_fields]),
    ],
)
def test_every_row_of_a_generated_table_has_its_anchor(client, page, names):
    assert set(names) <= anchors(client.get(f"/help/{page}").text)


def test_every_field_that_the_launch_form_links_to_has_its_anchor(client):
    form = (FRONTEND / "src/components/launch/name.js").read_text(encoding="utf-8")
    linked = re.compile(re.findall(r"const EXPLAINED = /(.+)/;", form)[0])
    assert "href=${`/help/methods#${field.path}`}" in form
    paths = {path for path in paths_of(RunConfig) if linked.search(path)}
    assert {"objective.surrogate.cap", "filters.groups.low", "objective.entropy.coef"} <= paths
    assert len(paths) > 80
    assert paths - anchors(client.get("/help/methods").text) == set()


def test_a_heading_that_is_a_field_has_its_path_as_anchor(tmp_path):
    assert '<h3 id="a.b">' in written(tmp_path, "# T\n\n### `a.b`\n")
    assert '<h3 id="of-ab">' in written(tmp_path, "# T\n\n### Of `a.b`\n")


def test_raw_html_and_addresses_that_run_code_are_text(tmp_path):
    body = written(
        tmp_path, "# T\n\n<script>alert(1)</script> <b onclick=x>b</b>\n\n[x](javascript:alert(1)) `<i>`\n"
    )
    assert not re.search(r"<(script|b|i)\b", body)
    assert "href" not in body
    assert "&lt;script&gt;" in body


def test_a_link_to_a_file_that_is_no_page_is_code(tmp_path):
    assert written(tmp_path, "See [the plan](../tests/faults/README.md).") == (
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
def test_what_is_no_page_is_not_found_in_the_usual_form(client, path):
    answer = client.get(f"/help/{path}", headers=GOING)
    assert answer.status_code == 404
    is_problem = answer.headers["content-type"] == "application/problem+json"
    assert is_problem or '<div id="app">' in answer.text


def test_a_viewer_reads_the_pages_and_a_stranger_does_not(client):
    for path in ("/help", "/help/security", "/help/decisions", "/help/pictures/compare.png"):
        assert client.get(path, headers={"Authorization": f"Bearer {VIEWER_TOKEN}"}).status_code == 200
        assert client.get(path, headers={"Authorization": ""}).status_code == 401


def test_a_page_is_what_docs_holds():
    assert all(path.is_relative_to(DOCS) for path in sources().values())
