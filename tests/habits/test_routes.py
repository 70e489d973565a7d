"""Tests of every route: access control, documentation, and problem documents as errors."""

import re

import pytest

from backend.base.settings import Settings
from backend.http.auth.permissions import GROUPS
from backend.service.main import create_app
from tests.route_list import operations

PROBLEM_TYPE = "application/problem+json"
PUBLIC_PATHS = {"/healthz"}
OPERATIONS = [
    (method.upper(), path, operation)
    for path, methods in create_app(Settings()).openapi()["paths"].items()
    for method, operation in methods.items()
]
PROBLEM_FIELDS = {"type", "title", "status", "detail", "request_id"}


def filled_in(path: str) -> str:
    return re.sub(r"\{\w+\}", "nothing", path)


def assert_is_problem(response) -> None:
    assert response.headers["content-type"] == PROBLEM_TYPE
    body = response.json()
    assert set(body) - {"errors"} == PROBLEM_FIELDS
    assert body["status"] == response.status_code
    assert body["detail"]
    for error in body.get("errors", []):
        assert set(error) == {"path", "message"}


def test_a_route_documents_its_purpose_and_its_errors():
    for method, path, documentation in OPERATIONS:
        assert documentation.get("summary"), f"{method} {path}"
        answers = documentation["responses"].items()
        failures = [answer for status, answer in answers if not status.startswith("2")]
        assert any(PROBLEM_TYPE in answer.get("content", {}) for answer in failures), f"{method} {path}"


def test_permissions_has_exactly_one_line_for_every_route():
    lines = {line for group in GROUPS.values() for line in group}
    assert len(lines) == sum(map(len, GROUPS.values()))
    assert operations(create_app(Settings())) == lines - {"GET /login", "POST /login"}


def test_without_a_token_no_route_answers(stranger):
    for method, path, _ in OPERATIONS:
        if path not in PUBLIC_PATHS:
            response = stranger.request(method, filled_in(path))
            assert response.status_code in {401, 403}, f"{method} {path}"
            assert_is_problem(response)


@pytest.mark.parametrize("method", ["HEAD", "OPTIONS", "PUT", "TRACE", "PROPFIND"])
def test_no_method_bypasses_the_gate(stranger, method):
    for path in {path for _, path, _ in OPERATIONS} - PUBLIC_PATHS:
        assert stranger.request(method, filled_in(path)).status_code in {401, 403}


def test_an_unknown_path_is_a_problem_document(client):
    for method, path, _ in OPERATIONS:
        if "{" in path:
            response = client.request(method, filled_in(path), json={})
            assert response.status_code in {404, 409, 422}, f"{method} {path}: {response.text}"
            assert_is_problem(response)
