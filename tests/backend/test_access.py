"""Token, link and cookie."""

import stat
import threading
import time

import pytest

from backend import access
from backend.permissions import Role
from backend.settings import Settings


@pytest.fixture
def fresh(state_dir):
    """An installation whose operator has chosen no token."""
    return Settings(state_dir=state_dir, port=8400)


def ticket_of(settings, role=Role.OPERATOR):
    return access.login_link(settings, role).partition("?token=")[2]


def test_the_token_is_made_once_and_is_private(fresh):
    assert access.token_of(fresh, Role.OPERATOR) == access.token_of(fresh, Role.OPERATOR)
    assert len(access.token_of(fresh, Role.OPERATOR)) >= 43
    assert stat.S_IMODE((fresh.state / "token").stat().st_mode) == 0o600


def test_processes_that_start_together_agree_on_the_token(fresh):
    found: list[str] = []
    threads = [
        threading.Thread(target=lambda: found.append(access.token_of(fresh, Role.OPERATOR))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1


def test_the_operators_own_token_is_used_and_not_written_down(settings):
    assert access.token_of(settings, Role.OPERATOR) == "secret"
    assert not (settings.state / "token").exists()


def test_a_link_works_once(fresh):
    ticket = ticket_of(fresh)
    assert access.redeem_link(fresh, ticket)
    assert not access.redeem_link(fresh, ticket)


def test_a_link_does_not_hold_the_token(fresh):
    assert access.token_of(fresh, Role.OPERATOR) not in access.login_link(fresh)


def test_a_link_ends_after_ten_minutes(fresh, monkeypatch):
    ticket = ticket_of(fresh)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 601)
    assert not access.redeem_link(fresh, ticket)


def test_links_that_were_used_long_ago_are_forgotten(fresh, monkeypatch):
    access.redeem_link(fresh, ticket_of(fresh))
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 700)
    access.redeem_link(fresh, ticket_of(fresh))
    assert len(list((fresh.run_dir / "used-links").iterdir())) == 1


@pytest.mark.parametrize(
    "change", [lambda t: t[:-1] + "x", lambda t: "9" + t[1:], lambda _: "", lambda _: "../../x"]
)
def test_a_link_that_was_changed_is_refused(fresh, change):
    assert not access.redeem_link(fresh, change(ticket_of(fresh)))


def test_another_token_ends_every_cookie_and_link(settings):
    other = settings.model_copy(update={"grpolab_token": "another"})
    assert access.role_of_cookie(settings, access.cookie_value(settings)) is Role.OPERATOR
    assert access.role_of_cookie(other, access.cookie_value(settings)) is None
    assert not access.redeem_link(other, ticket_of(settings))


def test_each_role_has_a_token_a_link_and_a_cookie_of_its_own(fresh):
    assert access.token_of(fresh, Role.OPERATOR) != access.token_of(fresh, Role.VIEWER)
    assert stat.S_IMODE((fresh.state / "viewer-token").stat().st_mode) == 0o600
    for role in Role:
        assert access.role_of_token(fresh, access.token_of(fresh, role)) is role
        assert access.role_of_cookie(fresh, access.cookie_value(fresh, role)) is role
        assert access.redeem_link(fresh, ticket_of(fresh, role)) is role


def test_another_viewer_token_ends_only_what_viewers_have(settings):
    other = settings.model_copy(update={"grpolab_viewer_token": "another"})
    assert access.role_of_cookie(other, access.cookie_value(settings, Role.VIEWER)) is None
    assert access.role_of_cookie(other, access.cookie_value(settings, Role.OPERATOR)) is Role.OPERATOR


def test_a_cookie_ends_after_thirty_days_and_cannot_be_stretched(settings, monkeypatch):
    cookie = access.cookie_value(settings)
    ends_at, _, signature = cookie.partition(".")
    assert access.role_of_cookie(settings, f"{int(ends_at) + 9}.{signature}") is None
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 30 * 86400 + 1)
    assert access.role_of_cookie(settings, cookie) is None
