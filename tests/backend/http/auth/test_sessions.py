"""Tests of login and logout of browsers, by link or form, and their protection from other sites."""

import anyio
import pytest
from sqlalchemy import select
from sqlalchemy.exc import OperationalError

from backend.http.auth import sessions as module
from backend.http.auth.permissions import Role
from backend.http.auth.sessions import BrowserSessions
from backend.http.auth.tokens import cookie_name, login_link, new_cookie
from backend.storage.models import BrowserSession
from tests.api_client import client_of_service, create_session_cookie

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}
CROSS_SITE_NAVIGATION = {
    "Sec-Fetch-Site": "cross-site",
    "Sec-Fetch-Mode": "navigate",
    "Sec-Fetch-Dest": "document",
}
CROSS_SITE_IMAGE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
CROSS_SITE_FRAME = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
SAME_SITE_NAVIGATION = {
    "Sec-Fetch-Site": "same-site",
    "Sec-Fetch-Mode": "no-cors",
    "Sec-Fetch-Dest": "script",
}


def make_ticket(settings, role=Role.OPERATOR):
    return login_link(settings, role).partition("?token=")[2]


def fetch_role(client):
    response = client.get("/api/v1/session")
    return response.json()["role"] if response.status_code == 200 else None


@pytest.fixture
def browsers(sqlite_url, settings):
    """A factory of browsers of one service."""
    with client_of_service(settings, sqlite_url, token="") as client:

        def browser(role=None):
            client.cookies.clear()
            headers = (
                {"Cookie": f"{cookie_name(settings)}={create_session_cookie(client, role)}"} if role else {}
            )
            return lambda method, path, **options: client.request(
                method, path, headers=SAME_ORIGIN | headers | options.pop("headers", {}), **options
            )

        yield browser


@pytest.mark.parametrize("headers", [CROSS_SITE_IMAGE, CROSS_SITE_FRAME, SAME_SITE_NAVIGATION])
def test_an_image_on_another_site_uses_up_no_link_and_no_attempt(stranger, settings, headers):
    ticket = make_ticket(settings)
    for token in [ticket, *["x"] * 20]:
        assert stranger.get(f"/?token={token}", headers=headers).status_code == 403
    assert stranger.get("/?token=x").status_code == 401
    assert stranger.get(f"/?token={ticket}").status_code == 303
    assert fetch_role(stranger) == "operator"


def test_a_link_on_another_site_asks_for_confirmation_before_login(stranger, settings):
    ticket = make_ticket(settings, Role.VIEWER)
    for _ in range(20):
        page = stranger.get(f"/run/abc?x=1&token={ticket}", headers=CROSS_SITE_NAVIGATION)
        assert (page.status_code, "Another site sent you to this" in page.text) == (200, True)
        assert "set-cookie" not in page.headers
    form = {"ticket": ticket, "path": "/run/abc?x=1"}
    assert stranger.post("/login", data=form, headers=CROSS_SITE_NAVIGATION).status_code == 403
    response = stranger.post("/login", data=form, headers=SAME_ORIGIN)
    assert (response.status_code, response.headers["location"]) == (303, "/run/abc?x=1")
    assert fetch_role(stranger) == "viewer"


def test_the_confirmation_page_contains_nothing_executable(stranger):
    page = stranger.get('/run/"><script>?token="><script>alert(1)</script>', headers=CROSS_SITE_NAVIGATION)
    assert "<script>" not in page.text


@pytest.mark.parametrize(
    "path", ["//evil.example", "/\\evil.example", "/\t/evil.example", "https://evil.example", "\r\n/x"]
)
def test_a_form_never_leads_to_another_site(stranger, settings, path):
    form = {"ticket": make_ticket(settings), "path": path}
    location = stranger.post("/login", data=form, headers=SAME_ORIGIN).headers["location"]
    assert location.startswith("/")
    assert not location.startswith(("//", "/\\"))


def test_only_failures_count_and_links_are_counted_separately_from_tokens(stranger, settings):
    for _ in range(20):
        assert stranger.post("/login", data={"token": "secret"}, headers=SAME_ORIGIN).status_code == 303
    stranger.cookies.clear()
    assert [stranger.get("/?token=x").status_code for _ in range(6)] == [401] * 5 + [429]
    assert stranger.post("/login", data={"token": "secret"}, headers=SAME_ORIGIN).status_code == 303
    stranger.cookies.clear()
    failures = [
        stranger.post("/login", data={"token": "x"}, headers=SAME_ORIGIN).status_code for _ in range(6)
    ]
    assert failures == [401] * 5 + [429]
    assert stranger.post("/login", data={"token": "secret"}, headers=SAME_ORIGIN).status_code == 429
    assert stranger.get(f"/?token={make_ticket(settings)}").status_code == 303


def test_head_does_not_redeem_a_link(stranger, settings):
    ticket = make_ticket(settings)
    response = stranger.head(f"/?token={ticket}")
    assert (response.status_code, "set-cookie" in response.headers) == (401, False)
    assert stranger.get(f"/?token={ticket}").status_code == 303


def test_a_viewers_link_asks_an_operator_before_it_replaces_the_session(stranger, settings):
    stranger.get(f"/?token={make_ticket(settings)}")
    ticket = make_ticket(settings, Role.VIEWER)
    page = stranger.get(f"/runs?token={ticket}")
    assert (page.status_code, "You are logged in as the operator" in page.text) == (200, True)
    assert fetch_role(stranger) == "operator"
    stranger.post("/login", data={"ticket": ticket, "path": "/runs"}, headers=SAME_ORIGIN)
    assert fetch_role(stranger) == "viewer"


def test_an_operators_link_makes_a_viewer_an_operator_and_ends_the_old_session(stranger, settings):
    stranger.get(f"/?token={make_ticket(settings, Role.VIEWER)}")
    viewer_cookies = dict(stranger.cookies)
    stranger.get(f"/?token={make_ticket(settings)}")
    assert fetch_role(stranger) == "operator"
    stranger.cookies.clear()
    stranger.cookies.update(viewer_cookies)
    assert fetch_role(stranger) is None


def test_logging_out_ends_the_session_in_addition_to_the_cookie(stranger, settings):
    stranger.get(f"/?token={make_ticket(settings)}")
    cookies = dict(stranger.cookies)
    response = stranger.delete("/api/v1/session", headers=SAME_ORIGIN)
    assert (response.status_code, stranger.cookies.get(cookie_name(settings))) == (200, None)
    stranger.cookies.update(cookies)
    assert fetch_role(stranger) is None


def test_an_operator_manages_every_session_and_a_viewer_only_their_own(browsers):
    operator, viewer, other_viewer = browsers(Role.OPERATOR), browsers(Role.VIEWER), browsers(Role.VIEWER)
    session_id = other_viewer("GET", "/api/v1/session").json()["session"]
    session_items = operator("GET", "/api/v1/sessions").json()["items"]
    assert sorted(item["role"] for item in session_items) == ["operator", "viewer", "viewer"]
    assert [item["is_current"] for item in session_items].count(True) == 1
    assert [item["id"] for item in other_viewer("GET", "/api/v1/sessions").json()["items"]] == [session_id]
    assert viewer("DELETE", f"/api/v1/sessions/{session_id}").status_code == 404
    assert other_viewer("GET", "/api/v1/session").status_code == 200
    assert operator("DELETE", f"/api/v1/sessions/{session_id}").json() == {"ended": session_id}
    assert other_viewer("GET", "/api/v1/session").status_code == 401
    assert operator("DELETE", f"/api/v1/sessions/{session_id}").status_code == 404
    viewer_session = viewer("GET", "/api/v1/session").json()["session"]
    assert viewer("DELETE", f"/api/v1/sessions/{viewer_session}").status_code == 200
    assert viewer("GET", "/api/v1/session").status_code == 401


def is_open(sessions, login):
    return anyio.run(sessions.open_one, [login]) is not None


@pytest.fixture
def row(settings, database):
    """A session in the database, and the login that its cookie stands for."""
    _, login = new_cookie(settings, Role.OPERATOR)
    with database.sessions.begin() as session:
        session.add(BrowserSession(id=login.id, role=login.role, seen_at=1.0, ends_at=float(login.ends_at)))
    return login


def test_a_signed_cookie_without_a_row_opens_nothing(settings, database):
    assert not is_open(BrowserSessions(database.sessions), new_cookie(settings, Role.OPERATOR)[1])


def test_another_process_notices_the_end_of_a_session_within_seconds(database, row, monkeypatch):
    first_process, second_process = BrowserSessions(database.sessions), BrowserSessions(database.sessions)
    assert is_open(second_process, row)
    assert first_process.end(row.id)
    assert not is_open(first_process, row)
    monkeypatch.setattr(module, "CACHE_SECONDS", 0.0)
    assert not is_open(second_process, row)


def test_during_a_database_outage_active_sessions_stay_and_ended_ones_do_not(
    database, row, settings, monkeypatch
):
    sessions = BrowserSessions(database.sessions)
    assert is_open(sessions, row)
    ended_login = new_cookie(settings, Role.VIEWER)[1]
    assert not is_open(sessions, ended_login)

    def fail_to_read(*_):
        raise OperationalError("SELECT", {}, OSError("away"))

    monkeypatch.setattr(module, "open_read_session", fail_to_read)
    monkeypatch.setattr(module, "CACHE_SECONDS", 0.0)
    assert is_open(sessions, row)
    assert not is_open(sessions, ended_login)


def test_during_a_database_outage_nobody_logs_in_and_the_link_stays_valid(stranger, settings, monkeypatch):
    ticket = make_ticket(settings)

    def fail_to_write(*_):
        raise OperationalError("INSERT", {}, OSError("away"))

    with monkeypatch.context() as patch:
        patch.setattr(BrowserSessions, "_insert_row", fail_to_write)
        response = stranger.get(f"/?token={ticket}")
        assert (response.status_code, "nobody can log in while" in response.text) == (503, True)
    assert stranger.get(f"/?token={ticket}").status_code == 303


def test_rows_of_expired_sessions_are_deleted(database, row, settings):
    with database.sessions.begin() as session:
        session.add(BrowserSession(id="expired", role="viewer", ends_at=5.0))
        session.add(BrowserSession(id="ended", role="viewer", ends_at=1e12, ended_at=5.0))
    _, login = new_cookie(settings, Role.OPERATOR)
    BrowserSessions(database.sessions)._insert_row(login, "", None)
    with database.sessions() as session:
        assert set(session.scalars(select(BrowserSession.id))) == {row.id, login.id}
