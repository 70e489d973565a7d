"""Tests of the frontend's files, health checks and Prometheus metrics."""

import re
import shutil

import pytest

from backend.http import frontend
from backend.http.pages import FRONTEND
from backend.storage.models import Worker


@pytest.mark.parametrize("path", ["/runs", "/compare?runs=a", "/run/abc"])
def test_every_address_of_the_application_serves_the_same_page(client, path):
    response = client.get(path)
    assert response.status_code == 200
    assert '<div id="app">' in response.text
    assert '<meta name="pages" content="[{&quot;path&quot;: &quot;/runs&quot;' in response.text


def test_a_browser_at_an_unknown_address_gets_a_page_that_says_so(client):
    navigation = {"Accept": "text/html,application/xhtml+xml"}
    response = client.get("/nowhere", headers=navigation)
    assert (response.status_code, '<div id="app">' in response.text) == (404, True)
    for path in ("/api/v1/nowhere", "/static/nowhere.js"):
        assert client.get(path, headers=navigation).json()["detail"] == f"there is nothing at {path}"
    assert client.get("/nowhere").json()["detail"] == "there is nothing at /nowhere"
    unauthorized_response = client.get("/nowhere", headers=navigation | {"Cookie": "", "Authorization": ""})
    assert (unauthorized_response.status_code, '<div id="app">' in unauthorized_response.text) == (401, False)


def test_browsers_cache_scripts_until_one_of_them_changes(client, tmp_path, monkeypatch):
    copy = tmp_path / "frontend"
    shutil.copytree(FRONTEND, copy, ignore=shutil.ignore_patterns("node_modules"))
    monkeypatch.setattr(frontend, "FRONTEND", copy)
    frontend._edition.cache_clear()
    addresses = re.findall(r'(?:src|href)="(/static/[^"]+)"', client.get("/runs").text)
    assert len(addresses) > 5
    for address in addresses:
        response = client.get(address)
        assert (response.status_code, response.headers["cache-control"]) == (200, frontend.PERMANENT_CACHING)
    with (copy / "src" / "main.js").open("a") as script:
        script.write("// changed")
    frontend._edition.cache_clear()
    old_response = client.get(addresses[0])
    assert (old_response.status_code, old_response.headers["cache-control"]) == (200, "no-cache")
    assert addresses[0] not in client.get("/runs").text
    assert client.get("/static/0123456789abcdef/package.json").status_code == 404
    assert client.get("/static/0123456789abcdef/0123456789abcdef/src/main.js").status_code == 404
    assert client.get(f"/static/{frontend.current_edition()}/bundles/nowhere.js").status_code == 404
    frontend._edition.cache_clear()


@pytest.mark.parametrize(
    "path", ["src", "src/nowhere.js", "package.json", "../backend/service/main.py", "src/../package.json"]
)
def test_only_files_of_the_pages_are_served_below_the_edition(client, path):
    for address in (path, path.replace("/", "%2f"), path.replace("..", "%2e%2e")):
        assert client.get(f"/static/{frontend.current_edition()}/{address}").status_code == 404


def test_a_path_outside_the_frontend_is_not_found(client):
    for path in (
        "/static/../backend/service/main.py",
        "/static/%2e%2e/backend/service/main.py",
        "/static/..%2fpyproject.toml",
        "/static/package.json",
    ):
        assert client.get(path).status_code == 404


def test_readiness_needs_database_broker_and_a_worker(client):
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["detail"] == "no worker is running"
    with client.app.state.lab.sessions.begin() as session:
        session.add(Worker(id="w-0", host="h", pid=1, slot=0, device="cpu", stats={}))
    assert client.get("/readyz").json() == {"status": "ready"}
    item = client.get("/api/v1/workers").json()["items"][0]
    assert (item["status"], item["run"], item["seen_at"][-1]) == ("idle", None, "Z")


@pytest.mark.parametrize(
    ("former", "current"),
    [
        ("/runs/abc?tab=log", "/run/abc?tab=log"),
        ("/rollouts", "/runs"),
        ("/rollouts?run=abc&step=3&kind=eval/math", "/run/abc?tab=rollouts&step=3&kind=eval/math"),
        ("/rollouts/abc?view=search&q=x%26y", "/run/abc?tab=rollouts&view=search&q=x%26y"),
        (
            "/rollouts?run=abc&view=causes&metric=reward/mean",
            "/run/abc?tab=rollouts&view=breakdown&metric=reward/mean",
        ),
        ("/rollouts?run=abc&view=probes", "/run/abc?tab=evaluations"),
        ("/rollouts?run=abc&view=runs", "/run/abc?tab=evaluations&across=1"),
        ("/rollouts?run=//evil.example", "/run/%2F%2Fevil.example?tab=rollouts"),
        ("/compare", "/experiments"),
        ("/compare?experiment=abc&by=run&x=wall", "/experiment/abc?by=run&x=wall"),
    ],
)
def test_a_former_address_redirects_to_the_new_one_with_its_parameters(client, former, current):
    response = client.get(former, follow_redirects=False)
    assert (response.status_code, response.headers["location"]) == (307, current)
