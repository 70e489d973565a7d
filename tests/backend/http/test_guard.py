"""Tests of the guard: who is admitted, and the headers of every response."""

import pytest

from backend.http.auth.tokens import cookie_name, login_link
from tests.api_client import HOST, create_session_cookie
from tests.gate import first_in_gate


def test_a_wrong_token_is_refused(stranger):
    for authorization in ("Bearer wrong", "Bearer ", "Basic secret", "secret", "Bearer sécret"):
        response = stranger.get("/api/v1/runs", headers={"Authorization": authorization.encode()})
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8400",
        "127.0.0.1",
        "127.0.0.1:80",
        "127.0.0.1:8400@evil.example",
        "localhost.evil:8400",
        "",
    ],
)
def test_an_unknown_host_is_refused_even_with_the_token(client, host):
    assert client.get("/healthz", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1:8400", "localhost:8400", "[::1]:8400", "LOCALHOST:8400"])
def test_names_of_this_machine_are_known(client, host):
    assert client.get("/api/v1/runs", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("method", first_in_gate(2, ["POST", "DELETE", "PATCH", "PUT"]))
@pytest.mark.parametrize(
    ("headers", "is_let_in"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Origin": HOST}, True),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "http://127.0.0.1:8401"}, False),
        ({"Origin": "null"}, False),
        ({"Sec-Fetch-Site": "cross-site", "Origin": HOST}, False),
        ({}, False),
    ],
)
def test_a_page_of_another_origin_cannot_change_anything(stranger, settings, method, headers, is_let_in):
    cookie = {"Cookie": f"{cookie_name(settings)}={create_session_cookie(stranger)}"}
    response = stranger.request(method, "/api/v1/runs/nobody", headers=headers | cookie)
    assert (response.status_code == 403) is not is_let_in


def test_the_link_sets_a_cookie_and_disappears_from_the_address(stranger, settings):
    ticket = login_link(settings).partition("?")[2]
    response = stranger.get(f"/run/abc?x=1&{ticket}", headers={"Accept": "text/html"})
    assert (response.status_code, response.headers["location"]) == (303, "/run/abc?x=1")
    cookie = response.headers["set-cookie"].lower()
    assert cookie.startswith("grpolab_8400=")
    assert all(attribute in cookie for attribute in ("httponly", "samesite=strict", "path=/"))
    assert stranger.get("/api/v1/runs").status_code == 200
    stranger.cookies.clear()
    second_response = stranger.get(f"/?{ticket}")
    assert second_response.status_code == 401
    assert "already been used" in second_response.text


def test_a_link_never_leads_to_another_site(stranger, settings):
    ticket = login_link(settings).partition("?")[2]
    response = stranger.get(f"{HOST}//evil.example/?{ticket}")
    assert response.headers["location"] == "/evil.example/"


def test_the_token_can_be_entered_in_the_form(stranger):
    page = stranger.get("/", headers={"Accept": "text/html"})
    assert page.status_code == 401
    assert "<form" in page.text
    form = {"headers": {"Sec-Fetch-Site": "same-origin"}, "data": {"token": "wrong"}}
    assert stranger.post("/login", **form).status_code == 401
    response = stranger.post("/login", **form | {"data": {"token": "secret"}})
    assert (response.status_code, response.headers["location"]) == (303, "/")
    assert stranger.get("/api/v1/runs").status_code == 200


def test_guessing_tokens_is_slowed_down(stranger):
    form = {"headers": {"Sec-Fetch-Site": "same-origin"}, "data": {"token": "wrong"}}
    responses = [stranger.post("/login", **form) for _ in range(6)]
    assert [response.status_code for response in responses] == [401] * 5 + [429]
    assert responses[-1].headers["retry-after"] == "12"
    assert "try again in 12 seconds" in responses[-1].json()["detail"]


def test_a_body_must_be_json_of_limited_size(client):
    path = "/api/v1/validate"
    assert client.post(path, content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 415
    big_body = b'{"a": "' + b"x" * 1_000_001 + b'"}'
    assert (
        client.post(path, content=big_body, headers={"Content-Type": "application/json"}).status_code == 413
    )

    def stream_chunks():
        for _ in range(20):
            yield b" " * 100_000

    response = client.post(path, content=stream_chunks(), headers={"Content-Type": "application/json"})
    assert response.status_code == 413


@pytest.mark.parametrize(
    "path", ["/", "/api/v1/runs", "/api/v1/nothing", "/static/src/main.js", "/healthz", "/docs"]
)
def test_every_response_carries_the_security_headers(client, path):
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe-eval" not in policy
    assert "require-trusted-types-for 'script'; trusted-types grpolab default" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert (headers.get("cache-control") == "no-store") is path.startswith("/api/")


def test_a_nul_character_in_an_address_is_refused(client):
    assert client.get("/api/v1/runs?q=%00").status_code == 400
    assert client.get("/api/v1/runs/a%00b").status_code == 400
