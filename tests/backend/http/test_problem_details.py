"""Tests that every error is a problem document."""

import pytest
from sqlalchemy.exc import OperationalError

from backend.http.problem_details import MEDIA_TYPE
from tests.api_client import replace_endpoint
from tests.gate import first_in_gate

JSON_HEADERS = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("method", "path", "options", "status"),
    first_in_gate(
        14,
        [
            ("GET", "/api/v1/nothing", {}, 404),
            ("GET", "/nothing", {}, 404),
            ("GET", "/static/nothing.js", {}, 404),
            ("GET", "/api/v1/runs/x", {}, 404),
            ("PUT", "/api/v1/runs", {}, 405),
            ("POST", "/healthz", {}, 405),
            ("GET", "/api/v1/runs?limit=0", {}, 422),
            ("GET", "/api/v1/runs?cursor=made-up", {}, 422),
            ("POST", "/api/v1/validate", {"json": []}, 422),
            ("POST", "/api/v1/experiments", {"json": {"name": 3}}, 422),
            ("POST", "/api/v1/experiments", {"content": rb'{"name":"\ud800"}', "headers": JSON_HEADERS}, 422),
            ("POST", "/api/v1/experiments", {"content": b"{", "headers": JSON_HEADERS}, 400),
            ("POST", "/api/v1/experiments", {"content": b"[" * 100_000, "headers": JSON_HEADERS}, 400),
            ("POST", "/api/v1/experiments", {"content": b'{"name": NaN}', "headers": JSON_HEADERS}, 422),
            ("POST", "/api/v1/experiments", {"content": b'{"name": 1e999}', "headers": JSON_HEADERS}, 422),
            ("POST", "/api/v1/experiments", {"content": b'{"seeds": [1e999]}', "headers": JSON_HEADERS}, 422),
            ("POST", "/api/v1/experiments", {"content": b"\xff", "headers": JSON_HEADERS}, 400),
            ("POST", "/api/v1/experiments", {"content": b"{}", "headers": {"Content-Type": "text/xml"}}, 415),
            ("POST", "/api/v1/experiments", {}, 422),
            ("GET", "/api/v1/runs?q=%00", {}, 400),
        ],
    ),
)
def test_an_error_is_a_problem_document(client, method, path, options, status):
    response = client.request(method, path, **options)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == MEDIA_TYPE
    document = response.json()
    assert set(document) - {"errors"} == {"type", "title", "status", "detail", "request_id"}
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    for error in document.get("errors", []):
        assert set(error) == {"path", "message"}


def test_a_field_error_names_the_field_its_value_and_the_expectation(client):
    error = client.get("/api/v1/runs?limit=5000").json()["errors"][0]
    assert error == {"path": "limit", "message": "must be at most 200, got '5000'"}


def test_a_bug_returns_an_error_without_a_traceback(client):
    replace_endpoint(client, "/api/v1/presets", lambda: 1 / 0)
    response = client.get("/api/v1/presets")
    assert (response.status_code, response.headers["content-type"]) == (500, MEDIA_TYPE)
    assert "division" not in response.text
    assert "content-security-policy" in response.headers


def test_a_database_outage_is_503_with_a_time_to_retry(client):
    def fail():
        raise OperationalError("SELECT 1", {}, Exception("secret address"))

    replace_endpoint(client, "/api/v1/presets", fail)
    response = client.get("/api/v1/presets")
    assert (response.status_code, response.headers["retry-after"]) == (503, "2")
    assert "secret" not in response.text


def test_every_route_declares_its_errors(client):
    for path, operations in client.app.openapi()["paths"].items():
        for method, operation in operations.items():
            assert "default" in operation["responses"], (method, path)


def test_a_secret_in_a_parameter_is_not_repeated(client):
    secret = "hf_" + "A" * 34
    assert secret not in client.get("/api/v1/runs", params={"limit": secret}).text
