"""Token, link and cookie."""

import stat
import threading
import time

import pytest

from backend import access
from backend.settings import Settings


@pytest.fixture
def fresh(state_dir):
    """An installation whose operator has chosen no token."""
    return Settings(state_dir=state_dir, port=8400)


def ticket_of(settings):
    return access.login_link(settings).partition("?token=")[2]


def test_the_token_is_made_once_and_is_private(fresh):
    assert access.operator_token(fresh) == access.operator_token(fresh)
    assert len(access.operator_token(fresh)) >= 43
    assert stat.S_IMODE((fresh.state / "token").stat().st_mode) == 0o600


def test_processes_that_start_together_agree_on_the_token(fresh):
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(access.operator_token(fresh))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 1


def test_the_operators_own_token_is_used_and_not_written_down(settings):
    assert access.operator_token(settings) == "secret"
    assert not (settings.state / "token").exists()


def test_a_link_works_once(fresh):
    ticket = ticket_of(fresh)
    assert access.redeem_link(fresh, ticket)
    assert not access.redeem_link(fresh, ticket)


def test_a_link_does_not_hold_the_token(fresh):
    assert access.operator_token(fresh) not in access.login_link(fresh)


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
    assert access.is_cookie(settings, access.cookie_value(settings))
    assert not access.is_cookie(other, access.cookie_value(settings))
    assert not access.redeem_link(other, ticket_of(settings))
