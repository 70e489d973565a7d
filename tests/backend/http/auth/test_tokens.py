"""Tests of tokens, login links and cookies."""

import stat
import threading
import time

import pytest

from backend.base.errors import InvalidRequest
from backend.base.redaction import redact
from backend.base.settings import Settings
from backend.http.auth import tokens as access
from backend.http.auth.permissions import PEOPLE, Role


@pytest.fixture
def new_settings(state_dir):
    """An installation whose operator has not chosen a token."""
    return Settings(state_dir=state_dir, port=8400)


def make_ticket(settings, role=Role.OPERATOR):
    return access.login_link(settings, role).partition("?token=")[2]


def test_the_token_is_made_once_and_is_private(new_settings):
    assert access.read_or_create_token(new_settings, Role.OPERATOR) == access.read_or_create_token(
        new_settings, Role.OPERATOR
    )
    assert len(access.read_or_create_token(new_settings, Role.OPERATOR)) >= 43
    assert stat.S_IMODE((new_settings.state / "token").stat().st_mode) == 0o600


def test_processes_that_start_together_use_the_same_token(new_settings):
    tokens: list[str] = []
    threads = [
        threading.Thread(
            target=lambda: tokens.append(access.read_or_create_token(new_settings, Role.OPERATOR))
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(tokens)) == 1


def test_a_link_works_once(new_settings):
    ticket = make_ticket(new_settings)
    assert access.redeem_link(new_settings, ticket)
    assert not access.redeem_link(new_settings, ticket)


def test_a_link_expires_after_ten_minutes(new_settings, monkeypatch):
    ticket = make_ticket(new_settings)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 601)
    assert not access.redeem_link(new_settings, ticket)


@pytest.mark.parametrize(
    "change", [lambda t: t[:-1] + "x", lambda t: "9" + t[1:], lambda _: "", lambda _: "../../x"]
)
def test_a_link_that_was_changed_is_refused(new_settings, change):
    assert not access.redeem_link(new_settings, change(make_ticket(new_settings)))


def make_cookie(settings, role=Role.OPERATOR):
    return access.new_cookie(settings, role)[0]


def test_a_new_token_invalidates_every_cookie_and_link(settings):
    with_other_token = settings.model_copy(update={"grpolab_token": "another"})
    cookie = make_cookie(settings)
    assert access.parse_cookie(settings, cookie).role is Role.OPERATOR
    assert access.parse_cookie(with_other_token, cookie) is None
    assert not access.redeem_link(with_other_token, make_ticket(settings))


def test_each_role_has_its_own_token_link_and_cookie(new_settings):
    assert access.read_or_create_token(new_settings, Role.OPERATOR) != access.read_or_create_token(
        new_settings, Role.VIEWER
    )
    assert stat.S_IMODE((new_settings.state / "viewer-token").stat().st_mode) == 0o600
    for role in PEOPLE:
        assert access.token_role(new_settings, access.read_or_create_token(new_settings, role)) is role
        assert access.parse_cookie(new_settings, make_cookie(new_settings, role)).role is role
        assert access.redeem_link(new_settings, make_ticket(new_settings, role)) is role


def test_a_new_viewer_token_invalidates_only_viewer_logins(settings):
    with_other_token = settings.model_copy(update={"grpolab_viewer_token": "another"})
    assert access.parse_cookie(with_other_token, make_cookie(settings, Role.VIEWER)) is None
    assert access.parse_cookie(with_other_token, make_cookie(settings)).role is Role.OPERATOR


def test_a_cookie_expires_after_thirty_days_and_cannot_be_extended(settings, monkeypatch):
    cookie = make_cookie(settings)
    ends_at, _, signature = cookie.partition(".")
    assert access.parse_cookie(settings, f"{int(ends_at) + 9}.{signature}") is None
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 30 * 86400 + 1)
    assert access.parse_cookie(settings, cookie) is None


def test_a_link_that_opened_nothing_can_be_used_again(new_settings):
    ticket = make_ticket(new_settings)
    assert access.redeem_link(new_settings, ticket)
    access.return_link(new_settings, ticket)
    assert access.redeem_link(new_settings, ticket)


ODD_COOKIES = [
    *("a[b]=1", "a{b}=1", 'a="unclosed', "a=b c", 'a="b;c"', "a", "=a", "a=", "a:b=1", "a=b,c=d", "a/b=1"),
    *("a=(x)", "(a)=x", "a=<x>", "ä=ö", "a=\t", "$Version=1", "a=b=c==", "_xsrf=2|ab|cd|1", "a='x'", "a?b=1"),
    *('username-localhost-8888="2|1:0|10:1"', "Path=/x", "expires=never", "a=%00", "__Host-x={}", "a=\\"),
    *(";;;", "a@b=1", "x" * 3000),
]


@pytest.mark.parametrize("odd", ODD_COOKIES)
def test_an_odd_cookie_of_another_program_does_not_hide_ours(settings, odd):
    cookie = f"{access.cookie_name(settings)}={make_cookie(settings)}"
    for header in (f"{odd}; {cookie}", f"{cookie}; {odd}", f"{odd};{cookie};{odd}"):
        [login] = access.parse_cookies(settings, [header])
        assert login.role is Role.OPERATOR, header


def test_another_cookie_of_our_name_does_not_hide_ours(settings):
    name = access.cookie_name(settings)
    header = (
        f"{name}=of-another-path; {name}={make_cookie(settings, Role.VIEWER)}; {name}={make_cookie(settings)}"
    )
    assert [login.role for login in access.parse_cookies(settings, [header, f"{name}=x"])] == [*PEOPLE]
    assert access.parse_cookies(settings, []) == []


def test_a_writers_token_is_signed_with_its_name_and_is_not_a_key(settings):
    token = access.writer_token(settings, "node-7")
    assert access.token_writer(settings, token) == "node-7"
    signature = token.rpartition(".")[2]
    for forged_token in (
        "",
        token[:-1],
        token + "0",
        f"writer.node-8.{signature}",
        f"writer..{signature}",
        "writer.é.x",
    ):
        assert access.token_writer(settings, forged_token) is None
    for people in (token, access.read_or_create_token(settings, Role.WRITER)):
        assert access.token_role(settings, people) is None
    changed_settings = settings.model_copy(update={"grpolab_writer_key": "another-key-for-writers"})
    assert access.token_writer(changed_settings, token) is None
    for name in ("", "a b", "../x", "x" * 65):
        with pytest.raises(InvalidRequest):
            access.writer_token(settings, name)
    assert redact(f"the client sent {token}") == "the client sent [secret]"


def test_writers_get_no_link_and_no_cookie(settings):
    assert access.link_role(settings, access.login_link(settings, Role.WRITER).partition("token=")[2]) is None
    assert access.parse_cookie(settings, access.new_cookie(settings, Role.WRITER)[0]) is None
