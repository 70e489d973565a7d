"""Tests with generated requests and invalid data for every route with a body."""

import json

import pytest

from backend.http.auth.permissions import FILES, READS, WRITES
from tests.fuzz.schemathesis_round import play
from tests.route_list import filled_in

NESTING_DEPTH = 100_000
INVALID_BODIES = {
    "nothing": b"",
    "no json": b"{",
    "not utf-8": b'{"name": "\xff\xfe"}',
    "utf-16": '{"name": "x"}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "too deep": b"[" * NESTING_DEPTH + b"]" * NESTING_DEPTH,
    "objects too deep": b'{"a":' * NESTING_DEPTH + b"1" + b"}" * NESTING_DEPTH,
    "a key twice": b'{"name": "a", "name": "b", "seed": 1, "seed": 2}',
    "a list": b"[]",
    "a text": b'"x"',
    "null": b"null",
    "a number of 5000 digits": b'{"seed": ' + b"9" * 5000 + b"}",
}
INVALID_VALUES = {
    "NaN": b"NaN",
    "infinity": b"-Infinity",
    "1e999": b"1e999",
    "NUL": rb'"\u0000"',
    "half a pair": rb'"\ud800"',
    "2^63": str(2**63).encode(),
    "deep": b"[" * 60 + b"]" * 60,
}
FIELD_NAMES = (
    "seed",
    "steps",
    "name",
    "notes",
    "base",
    "changes",
    "problems",
    "priority",
    "policy",
    "unknown",
)
CONTENT_TYPES = (
    "text/plain",
    "application/xml",
    "multipart/form-data",
    "application/x-www-form-urlencoded",
    "",
)
SUFFIXES_WITHOUT_BODY = ("/stop", "/pause", "/resume", "/retry", "/restore")


def routes():
    """Yield method and address of every route that reads JSON."""
    for line in (*READS, *WRITES):
        method, path = line.split()
        is_upload = (method, path) in FILES
        if method in ("POST", "PATCH") and not is_upload and not path.endswith(SUFFIXES_WITHOUT_BODY):
            yield method, filled_in(path)


def assert_refused(response, context):
    assert 400 <= response.status_code < 500, (context, response.status_code, response.text[:200])
    assert response.headers["content-type"] == "application/problem+json", context
    assert json.loads(response.text)["detail"], context


@pytest.mark.parametrize("kind", INVALID_BODIES)
def test_a_body_that_is_not_an_object_is_refused(client, kind):
    for method, path in routes():
        response = client.request(
            method, path, content=INVALID_BODIES[kind], headers={"Content-Type": "application/json"}
        )
        may_be_empty = kind in ("nothing", "null") and path.endswith(("/clone", "/evaluations"))
        assert_refused(response, (kind, path))
        assert response.status_code == 404 or not may_be_empty


@pytest.mark.parametrize("kind", INVALID_VALUES)
def test_an_unstorable_value_is_refused_in_every_field(client, kind):
    for method, path in routes():
        for field in FIELD_NAMES:
            body = b'{"%s": %s}' % (field.encode(), INVALID_VALUES[kind])
            response = client.request(
                method, path, content=body, headers={"Content-Type": "application/json"}
            )
            assert_refused(response, (kind, path, field))


@pytest.mark.parametrize("kind", CONTENT_TYPES)
def test_a_body_of_another_type_is_refused(client, kind):
    for method, path in routes():
        response = client.request(method, path, content=b"{}", headers={"Content-Type": kind})
        assert response.status_code == 415, (kind, path)
        assert_refused(response, (kind, path))


@pytest.mark.nightly
@pytest.mark.parametrize(("database", "client_role"), [("sqlite", "operator"), ("postgres", "viewer")])
def test_schemathesis_finds_no_violation(database, client_role):
    played_round = play(database, client_role, seed=1, examples=4, phases="fuzzing,stateful")
    assert [status for status in played_round.statuses if status >= "5"] == []
    assert played_round.violations == {}
    assert played_round.statuses.total() > 150
