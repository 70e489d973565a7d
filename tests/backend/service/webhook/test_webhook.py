"""Tests of webhooks over real connections: signed, in order, retried, and never to internal addresses."""

import http.server
import ipaddress
import json
import socket
import threading
from typing import Any

import pytest
from sqlalchemy import select

from backend.base.settings import Settings
from backend.runs.events import add_event
from backend.service.webhook import post as post_module
from backend.service.webhook.addresses import Unreachable, is_outside, resolve
from backend.service.webhook.messages import choose_format, signature
from backend.service.webhook.post import post
from backend.service.webhook.sender import BACKOFF_SECONDS, Sender
from backend.storage.models import Event, Webhook
from tests.factories import make_run

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


class Endpoint(http.server.ThreadingHTTPServer):
    """A server that records events and returns the statuses in `answers`, then 204."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[int] = []
        self.hold = threading.Event()
        self.hold.set()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hook?a=1"

    def events(self) -> list[Any]:
        return [json.loads(body)["data"]["event"] for _, _, body in self.received]


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append((self.path, dict(self.headers), body))
        self.server.hold.wait(10)
        status = self.server.answers.pop(0) if self.server.answers else 204
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "http://127.0.0.1:1/inside")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def endpoint():
    server = Endpoint()
    yield server
    server.hold.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def configured(settings, endpoint):
    """A function that returns the settings with the endpoint's address and other changes."""

    def with_changes(**changes):
        fields = {
            "grpolab_webhook_url": endpoint.url,
            "grpolab_webhook_secret": SECRET,
            "grpolab_webhook_private": True,
        }
        return Settings(**settings.model_dump() | fields | changes)

    return with_changes


@pytest.fixture
def follow(database, configured, clock):
    """A function that makes a sender which starts to follow after an existing event."""

    def follow(**changes):
        add_events(database)
        sender = Sender(configured(**changes), database.sessions, clock)
        sender.send_next()
        return sender

    return follow


@pytest.fixture
def sender(follow):
    return follow()


def add_events(database, count=1, *, kind="diagnosis", level="error"):
    """Add events to a run and return their ids."""
    event_data = {"verdict": "collapsed"}
    with database.sessions.begin() as session:
        run = make_run(session, name="<b>run</b>")
        for number in range(count):
            message = f"verdict collapsed {number}"
            add_event(session, kind, message, run_id=run.id, level=level, step=70, data=event_data)
    with database.sessions() as session:
        return list(session.scalars(select(Event.id).where(Event.run_id == run.id)))


def send_all(sender):
    while sender.send_next():
        pass


def load_webhook(database):
    with database.sessions() as session:
        return session.get_one(Webhook, "webhook")


def test_the_signature_follows_standard_webhooks():
    """The example is from the specification."""
    body = b'{"test": 2432232314}'
    header = signature(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body)
    assert header == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_events_arrive_in_order_signed_with_their_run(database, sender, endpoint, clock):
    ids = add_events(database, 3)
    send_all(sender)
    assert endpoint.events() == ids
    path, headers, body = endpoint.received[0]
    assert path == "/hook?a=1"
    assert headers["webhook-id"] == f"evt_{ids[0]}"
    assert headers["webhook-timestamp"] == str(int(clock.now))
    assert headers["webhook-signature"] == signature(
        SECRET, headers["webhook-id"], headers["webhook-timestamp"], body
    )
    document = json.loads(body)
    assert document["type"] == "diagnosis.verdict"
    assert document["data"]["run"]["name"] == "<b>run</b>"
    assert document["data"]["details"]["verdict"] == "collapsed"


def test_a_failed_delivery_is_retried_after_a_pause_and_nothing_is_lost(database, sender, endpoint, clock):
    ids = add_events(database, 2)
    endpoint.answers = [500, 503]
    send_all(sender)
    send_all(sender)
    assert endpoint.events() == ids[:1]
    assert load_webhook(database).last_error == "127.0.0.1 answered 500"
    clock.now += BACKOFF_SECONDS[0] + 1
    send_all(sender)
    clock.now += BACKOFF_SECONDS[1] + 1
    send_all(sender)
    assert endpoint.events() == [ids[0], ids[0], ids[0], ids[1]]
    assert (load_webhook(database).failures, load_webhook(database).last_error) == (0, "")


def test_a_sender_that_dies_before_the_response_sends_the_event_again(
    database, configured, endpoint, clock, follow, monkeypatch
):
    first = follow()
    ids = add_events(database, 2)

    def die(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(first, "_settle", die)
    with pytest.raises(KeyboardInterrupt):
        first.send_next()
    second = Sender(configured(), database.sessions, clock)
    second._owner = first._owner  # its lease has expired
    send_all(second)
    assert endpoint.events() == [ids[0], *ids]


def test_one_process_at_a_time_sends(database, configured, endpoint, clock, sender):
    add_events(database)
    second_sender = Sender(configured(), database.sessions, clock)
    assert not second_sender.send_next()
    assert endpoint.events() == []


def test_an_undeliverable_event_is_dropped_after_a_day_and_the_next_follows(
    database, sender, endpoint, clock
):
    ids = add_events(database, 2)
    endpoint.answers = [400] * (len(BACKOFF_SECONDS) + 1)
    for pause in (*BACKOFF_SECONDS, 0.0):
        send_all(sender)
        clock.now += pause + 1
    assert sum(BACKOFF_SECONDS) == pytest.approx(24 * 3600, rel=0.1)
    send_all(sender)
    assert endpoint.events()[-2:] == ids
    with database.sessions() as session:
        given_up = session.scalars(select(Event.message).where(Event.kind == "webhook")).one()
    assert given_up == f"the webhook gave up event {ids[0]} after 11 tries: 127.0.0.1 answered 400"


def test_a_clock_that_was_set_back_does_not_stop_the_webhook(database, sender, endpoint, clock):
    ids = add_events(database)
    endpoint.answers = [500]
    send_all(sender)
    clock.now -= 365 * 86400
    send_all(sender)
    assert endpoint.events() == ids * 2


def test_a_redirect_is_not_followed(database, sender, endpoint):
    add_events(database)
    endpoint.answers = [302]
    send_all(sender)
    assert load_webhook(database).last_error == "127.0.0.1 answered 302: redirects are not followed"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "0.0.0.0",
        "224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fd00::1", "fec0::1", "ff02::1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "::127.0.0.1",
        "192.0.0.8", "192.0.0.192", "192.88.99.1", "168.63.129.16", "::ffff:168.63.129.16", "2001::1",
        "3fff::1", "5f00::1", "100:0:0:1::1", "64:ff9b:1::1", "2620:4f:8000::1",
    ],
)  # fmt: skip
def test_internal_addresses_are_recognised(address):
    assert not is_outside(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "64:ff9b::808:808"])
def test_public_addresses_are_recognised(address):
    assert is_outside(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/", "https://localhost/", "https://[::1]/", "https://2130706433/", "https://0x7f.1/",
        "https://[::ffff:169.254.169.254]/latest/meta-data", "https://10.0.0.1:8443/x",
    ],
)  # fmt: skip
def test_internal_addresses_are_refused_unless_allowed(url):
    with pytest.raises(Unreachable, match=r"internal address .*GRPOLAB_WEBHOOK_PRIVATE=true allows it"):
        resolve(url, private=False)


def test_a_name_with_one_internal_address_is_refused(monkeypatch):
    addresses = [(2, 1, 6, "", ("93.184.216.34", 443)), (2, 1, 6, "", ("192.168.0.1", 443))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: addresses)
    with pytest.raises(Unreachable, match=r"93.184.216.34, 192.168.0.1"):
        resolve("https://hooks.example/", private=False)


def test_a_name_is_resolved_once(monkeypatch, endpoint):
    """Addresses from later resolutions are never connected to."""
    lookup = socket.getaddrinfo
    hosts = []

    def resolve_once(host, *arguments, **options):
        hosts.append(host)
        return lookup("127.0.0.1", *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve_once)
    post(resolve(f"http://rebinding.example:{endpoint.server_port}/", private=True), b"{}", {})
    assert [host for host in hosts if host == "rebinding.example"] == ["rebinding.example"]
    assert endpoint.received[0][1]["Host"] == f"rebinding.example:{endpoint.server_port}"


def test_plain_http_is_refused_except_to_internal_addresses():
    with pytest.raises(Unreachable, match="must begin with https://"):
        resolve("http://93.184.216.34/", private=False)


def test_a_self_signed_certificate_is_refused(endpoint):
    target = resolve(endpoint.url.replace("http://", "https://"), private=True)
    with pytest.raises(Unreachable, match="cannot be reached"):
        post_module.try_connection(target, seconds=60)


@pytest.mark.parametrize(
    ("url", "setting", "form"),
    [
        ("https://hooks.slack.com/services/T/B/x", "auto", "slack"),
        ("https://discord.com/api/webhooks/1/x", "auto", "discord"),
        ("https://discord.com/other", "auto", "json"),
        ("https://hooks.slack.com.evil.example/services", "auto", "json"),
        ("https://chat.example/", "slack", "slack"),
    ],
)
def test_the_format_follows_the_address_or_the_setting(url, setting, form):
    assert choose_format(url, setting) == form


@pytest.mark.parametrize(
    "fields",
    [
        {"grpolab_webhook_url": "ftp://x"}, {"grpolab_webhook_url": "https://"},
        {"grpolab_webhook_url": "https://user:pass@host/"}, {"grpolab_webhook_url": "https://host:99999/"},
        {"grpolab_webhook_url": "https://host/\r\nX: y"}, {"grpolab_webhook_secret": "short"},
        {"grpolab_webhook_secret": "whsec_c2hvcnQ="}, {"grpolab_webhook_secret": "whsec_ä"},
    ],
)  # fmt: skip
def test_unusable_settings_are_refused(fields):
    with pytest.raises(ValueError, match="grpolab_webhook"):
        Settings(**fields)
