"""Vendored files are the published ones, and no file of the pages breaks the rules they live under."""

import hashlib
import json
import re
from pathlib import Path

import pytest

FRONTEND = Path(__file__).parents[2] / "frontend"
VENDOR = FRONTEND / "vendor"
MANIFEST = json.loads((VENDOR / "manifest.json").read_text())["files"]
SOURCES = sorted((FRONTEND / "src").rglob("*.js"))


def code(path):
    return re.sub(r"/\*.*?\*/|(?<!:)//[^\n]*", "", path.read_text(), flags=re.DOTALL)


@pytest.mark.parametrize("entry", MANIFEST, ids=lambda entry: entry["file"])
def test_a_vendored_file_is_the_one_in_the_manifest(entry):
    assert hashlib.sha256((VENDOR / entry["file"]).read_bytes()).hexdigest() == entry["sha256"]
    assert (VENDOR / entry["licence_file"]).is_file()


def test_every_vendored_script_is_in_the_manifest():
    assert {path.name for path in VENDOR.glob("*.js")} == {entry["file"] for entry in MANIFEST}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(FRONTEND)))
def test_a_source_file_is_short_and_writes_no_markup(path):
    text = code(path)
    assert path.read_text().count("\n") <= 400
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySet|\beval\(", text
    )
    assert not re.search(r"\bexport default\b", text)


def test_only_one_file_touches_plotly():
    touching = [path.name for path in SOURCES if re.search(r"\bPlotly\b(?! JSON)|loadPlotly", code(path))]
    assert touching == ["draw.js"]


def test_the_page_has_no_inline_script():
    page = (FRONTEND / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)", page)
    assert not re.search(r"\son\w+=", page)
