"""The frontend's files, health and numbers for Prometheus."""

import gzip
import re
import shutil

import pytest
import zstandard
from plotly import __version__ as plotly_version
from plotly.offline import get_plotlyjs_version

from backend.http import frontend
from backend.http.pages import FRONTEND
from backend.storage.models import Worker


@pytest.mark.parametrize("path", ["/runs", "/compare?runs=a", "/run/abc"])
def test_every_address_of_the_application_is_one_page(client, path):
    answer = client.get(path)
    assert answer.status_code == 200
    assert '<div id="app">' in answer.text
    assert '<meta name="pages" content="[{&quot;path&quot;: &quot;/runs&quot;' in answer.text


def test_a_browser_that_goes_nowhere_gets_the_page_that_says_so(client):
    navigation = {"Accept": "text/html,application/xhtml+xml"}
    answer = client.get("/nowhere", headers=navigation)
    assert (answer.status_code, '<div id="app">' in answer.text) == (404, True)
    for path in ("/api/v1/nowhere", "/static/nowhere.js"):
        assert client.get(path, headers=navigation).json()["detail"] == f"there is nothing at {path}"
    assert client.get("/nowhere").json()["detail"] == "there is nothing at /nowhere"
    stranger = client.get("/nowhere", headers=navigation | {"Cookie": "", "Authorization": ""})
    assert (stranger.status_code, '<div id="app">' in stranger.text) == (401, False)


def test_scripts_are_asked_about_each_time_and_sent_once(client):
    first = client.get("/static/src/main.js")
    assert first.headers["cache-control"] == "no-cache"
    assert first.headers["content-type"].startswith("text/javascript")
    again = client.get("/static/src/main.js", headers={"If-None-Match": first.headers["etag"]})
    assert again.status_code == 304


def test_browsers_keep_scripts_for_good_until_one_of_them_changes(client, tmp_path, monkeypatch):
    copy = tmp_path / "frontend"
    shutil.copytree(FRONTEND, copy, ignore=shutil.ignore_patterns("node_modules"))
    monkeypatch.setattr(frontend, "FRONTEND", copy)
    frontend._edition.cache_clear()
    addresses = re.findall(r'(?:src|href)="(/static/[^"]+)"', client.get("/runs").text)
    assert len(addresses) > 5
    for address in addresses:
        answer = client.get(address)
        assert (answer.status_code, answer.headers["cache-control"]) == (200, frontend.FOREVER)
    with (copy / "src" / "main.js").open("a") as script:
        script.write("// changed")
    frontend._edition.cache_clear()
    old = client.get(addresses[0])
    assert (old.status_code, old.headers["cache-control"]) == (200, "no-cache")
    assert addresses[0] not in client.get("/runs").text
    assert client.get("/static/0123456789abcdef/package.json").status_code == 404
    assert client.get("/static/0123456789abcdef/0123456789abcdef/src/main.js").status_code == 404
    frontend._edition.cache_clear()


@pytest.mark.parametrize("encoding", ["zstd", "gzip", ""])
def test_files_that_browsers_keep_come_as_they_are_on_disk(client, encoding):
    address = next(
        link for link in re.findall(r'href="(/static/[^"]+)"', client.get("/runs").text) if "src" in link
    )
    accepted = {"Accept-Encoding": f"br, {encoding}" if encoding else "identity"}
    with client.stream("GET", address, headers=accepted) as answer:
        packed = b"".join(answer.iter_raw())
    unpacked = packed
    if encoding:
        unpacked = zstandard.decompress(packed) if encoding == "zstd" else gzip.decompress(packed)
    path = address.removeprefix(f"/static/{frontend.edition()}/")
    assert unpacked == (FRONTEND / path).read_bytes()
    assert answer.headers.get("content-encoding", "") == encoding
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert (answer.headers["content-length"], answer.headers["vary"]) == (str(len(packed)), "Accept-Encoding")
    again = client.get(address, headers=accepted | {"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path", ["src", "src/nowhere.js", "package.json", "../backend/service/main.py", "src/../package.json"]
)
def test_below_the_edition_only_files_of_the_pages_are_served(client, path):
    for address in (path, path.replace("/", "%2f"), path.replace("..", "%2e%2e")):
        assert client.get(f"/static/{frontend.edition()}/{address}").status_code == 404


def test_plotly_is_the_basic_build_of_the_installed_packages_version():
    assert frontend._plotly_build() == frontend.PLOTLY_BASIC
    assert frontend._plotly_version(frontend.PLOTLY_BASIC) == get_plotlyjs_version()


def test_another_version_of_the_package_brings_its_own_plotly(tmp_path, monkeypatch):
    older = tmp_path / "plotly-basic.min.js"
    older.write_text("/**\n* plotly.js (basic - minified) v1.0.0\n*/")
    monkeypatch.setattr(frontend, "PLOTLY_BASIC", older)
    build = frontend._plotly_build()
    assert (build.name, frontend._plotly_version(build)) == ("plotly.min.js", get_plotlyjs_version())


def test_plotly_is_compressed_once(client, settings):
    answer = client.get("/vendor/plotly.min.js", params={"v": plotly_version})
    assert answer.headers["content-encoding"] == "gzip"
    assert "immutable" in answer.headers["cache-control"]
    assert "plotly.js (basic - minified) v" in answer.text[:300]
    plain = client.get("/vendor/plotly.min.js", headers={"Accept-Encoding": "identity"})
    assert plain.headers["cache-control"] == "no-cache"
    assert plain.text == answer.text
    tag = {"If-None-Match": answer.headers["etag"]}
    assert client.get("/vendor/plotly.min.js", headers=tag).status_code == 304
    (cached,) = (settings.state / "cache").iterdir()
    assert gzip.decompress(cached.read_bytes()) == answer.content


def test_a_path_out_of_the_frontend_is_not_found(client):
    for path in (
        "/static/../backend/service/main.py",
        "/static/%2e%2e/backend/service/main.py",
        "/static/..%2fpyproject.toml",
        "/static/package.json",
    ):
        assert client.get(path).status_code == 404


def test_the_interface_is_described_without_foreign_scripts(client):
    page = client.get("/docs").text
    assert "/api/v1/series" in page
    assert "<script" not in page
    assert client.get("/openapi.json").json()["info"]["title"] == "GRPO Lab"


def test_ready_means_database_broker_and_a_worker(client):
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["detail"] == "no worker is running"
    with client.app.state.lab.sessions.begin() as session:
        session.add(Worker(id="w-0", host="h", pid=1, slot=0, device="cpu", stats={}))
    assert client.get("/readyz").json() == {"status": "ready"}
    item = client.get("/api/v1/workers").json()["items"][0]
    assert (item["status"], item["run"], item["seen_at"][-1]) == ("idle", None, "Z")


def test_the_catalog_has_what_form_and_charts_need(client):
    schema = client.get("/api/v1/config-schema").json()
    assert schema["defaults"]["steps"] == 150
    fields = {field.split(".")[0] for group in schema["groups"] for field in group["fields"]}
    assert fields == set(schema["schema"]["properties"]) - {"preset", "seed"}
    presets = {item["name"]: item for item in client.get("/api/v1/presets").json()["items"]}
    assert set(presets["dapo"]) >= {"name", "title", "source", "note", "config"}
    metrics = {item["name"]: item for item in client.get("/api/v1/metric-catalog").json()["items"]}
    assert metrics["policy/entropy"]["band"] == [0.02, 2.0]
    recipes = [item["name"] for item in client.get("/api/v1/recipes").json()["items"]]
    assert {"demo_healthy", "demo_collapse"} <= set(recipes)
    assert [item["name"] for item in client.get("/api/v1/policies").json()["items"]] == [
        "tiny",
        "tiny_moe",
        "",
    ]
    assert client.get("/api/v1/problems").json()["items"][0]["name"] == "sums"
