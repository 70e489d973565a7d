"""Tests of limits of size, rate and slowness, on a real socket and with rate limits under a fake clock."""

import json
import socket
import threading
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest

from backend.base.settings import Settings
from backend.http import limits
from backend.http.limits import Buckets
from backend.service.process import server
from backend.service.process.preflight import CannotStart, check_exposure
from tests.api_client import client_of_service
from tests.browser.service import TOKEN, running_service
from tests.waiting import wait_for

SECRET_TEXTS = ("hf_" + "a" * 34, "sk-" + "b" * 30, "postgresql://me:hunter2@db/x")


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch, running_service(tmp_path_factory.mktemp("lab")) as service:
        patch.setattr(server, "MAX_CONNECTIONS", 20)
        yield service


@pytest.fixture
def impatient(monkeypatch):
    """A service that waits two seconds for a complete request."""
    for module in (limits, server):
        monkeypatch.setattr(module, "MAX_ARRIVAL_SECONDS", 2.0)


@pytest.fixture
def host(service):
    """The Host header that a browser would send."""
    return service.base.removeprefix("http://").encode()


@pytest.fixture
def connect(service):
    """A factory of open sockets to the service."""
    connections = []
    port = int(service.base.rpartition(":")[2])

    def connecting():
        connections.append(socket.create_connection(("127.0.0.1", port), timeout=60))
        return connections[-1]

    yield connecting
    for connection in connections:
        connection.close()


def received_from(connection):
    """Return everything that is received until the service closes the connection."""
    received = b""
    with suppress(ConnectionResetError):  # data that the service did not read resets the connection
        while chunk := connection.recv(65536):
            received += chunk
    return received


def drip(connection, text):
    """Send one byte at a time until the service closes the connection."""
    for byte in text:
        try:
            connection.send(bytes([byte]))
        except OSError:
            return
        time.sleep(0.02)


def request(host, *lines, body=b""):
    head = b"POST /api/v1/validate HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n" % (
        host,
        TOKEN.encode(),
    )
    return head + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


@pytest.mark.usefixtures("impatient")
def test_a_trickling_head_is_cut_off(connect):
    connection = connect()
    thread = threading.Thread(target=drip, args=(connection, b"GET /healthz HTTP/1.1\r\n" + b"a" * 2000))
    thread.start()
    assert received_from(connection) == b""
    thread.join()


@pytest.mark.usefixtures("impatient")
def test_a_trickling_body_is_cut_off_with_a_message(connect, host):
    connection = connect()
    connection.sendall(
        request(host, b"Content-Type: application/json", b"Content-Length: 5000", body=b'{"a": "')
    )
    response = received_from(connection)
    assert response.startswith(b"HTTP/1.1 408")
    assert b"the body did not arrive within" in response


def test_a_normal_request_is_answered_after_slow_ones(connect, host):
    connection = connect()
    connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: %s\r\n\r\n" % host)
    assert connection.recv(1000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ([b"X-Large: " + b"x" * 20_000], b"431"),
        ([b"X-Large: " + b"x" * 300_000], b"400"),
        ([b"Content-Length: -5"], b"400"),
        ([b"no colon"], b"400"),
    ],
)
def test_a_head_that_is_too_large_or_not_http_is_a_problem(connect, host, lines, status):
    connection = connect()
    connection.sendall(request(host, *lines, b"Connection: close"))
    head, _, body = received_from(connection).partition(b"\r\n\r\n")
    assert head.split()[1] == status
    assert b"application/problem+json" in head
    assert json.loads(body)["status"] == int(status)


CHUNKED_HEADERS = (b"Content-Type: application/json", b"Transfer-Encoding: chunked")


@pytest.mark.parametrize("after", [b"2;name=", b"2\r\n{}\r\n0\r\nX-Trailer: "])
def test_chunk_framing_of_a_body_is_limited_like_a_head(connect, host, after):
    connection = connect()
    connection.sendall(request(host, *CHUNKED_HEADERS, body=after))
    with suppress(OSError):
        for _ in range(40):
            connection.sendall(b"x" * 10_000)
            time.sleep(0.005)
    assert b"HTTP/1.1 400" in received_from(connection)


@pytest.mark.parametrize("method", [b"POST", b"CONNECT"])
def test_a_body_is_never_read_as_a_request(connect, host, method):
    hidden_request = b"GET /healthz HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % host
    lines = (b"Connection: Upgrade", b"Upgrade: h2c", b"Content-Length: %d" % len(hidden_request))
    head = b"%s /login HTTP/1.1\r\nHost: %s\r\n" % (method, host)
    connection = connect()
    connection.sendall(head + b"".join(line + b"\r\n" for line in lines) + b"\r\n")
    time.sleep(0.2)
    connection.sendall(hidden_request)
    connection.shutdown(socket.SHUT_WR)
    assert b"HTTP/1.1 200" not in received_from(connection)


def test_a_stream_ends_with_its_client_even_if_another_request_waits(connect, host):
    get = b"GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n"
    requests = b"".join(get % (path, host, TOKEN.encode()) for path in (b"/api/v1/stream", b"/healthz"))

    def is_taken():
        connection = connect()
        connection.sendall(requests)
        with connection:
            return connection.recv(1000).startswith(b"HTTP/1.1 200")

    for _ in range(25):  # one token may have twenty
        wait_for(is_taken)


@pytest.mark.parametrize(
    "lines",
    [
        (b"Content-Length: 2", b"Transfer-Encoding: chunked"),
        (b"Transfer-Encoding: gzip, chunked",),
        (b"Content-Length: 2", b"Content-Length: 3"),
        (b"Transfer-Encoding: chunked, identity",),
        (b"Transfer-Encoding : chunked",),
    ],
)
@pytest.mark.usefixtures("impatient")
def test_an_ambiguous_request_is_refused(connect, host, lines):
    connection = connect()
    connection.sendall(
        request(host, b"Content-Type: application/json", *lines, b"Connection: close", body=b"{}")
    )
    status = received_from(connection).split()[1]
    assert status in {b"400", b"408", b"411", b"501"}


def test_silent_connections_block_nobody(connect, host):
    get = b"GET /healthz HTTP/1.1\r\nHost: %s\r\n" % host
    begun_connection = connect()
    begun_connection.sendall(get)  # a head without an end
    unsent_connection = connect()
    post = b"POST /api/v1/experiments HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n"
    unsent_connection.sendall(
        post % (host, TOKEN.encode()) + b"Content-Type: application/json\r\nContent-Length: 9\r\n\r\n"
    )
    connections = [begun_connection, unsent_connection, *(connect() for _ in range(25))]
    last = connect()
    last.sendall(get + b"Connection: close\r\n\r\n")
    assert received_from(last).startswith(b"HTTP/1.1 200")
    first, second, third = (received_from(connection) for connection in connections[:3])
    assert (first, third) == (b"", b""), "the oldest ones are closed"
    # The timing decides whether the route already waits for the body when the others arrive.
    assert second == b"" or second.startswith(b"HTTP/1.1 408")


def test_connections_over_the_limit_are_refused_with_a_message(connect, host):
    stream = b"GET /api/v1/stream HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\n\r\n"
    for _ in range(20):
        connection = connect()
        connection.sendall(stream % (host, TOKEN.encode()))
        assert connection.recv(12) == b"HTTP/1.1 200"
    response = received_from(connect())
    assert response.startswith(b"HTTP/1.1 503")
    assert b"20 connections are open" in response


def test_a_bucket_gives_its_content_and_refills(monkeypatch):
    now = [100.0]
    # Patch only this module: the service's event loop would hang with a stopped clock.
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: now[0]))
    buckets = Buckets(per_second=10, burst=3)
    assert [buckets.take_token("a") for _ in range(3)] == [0.0, 0.0, 0.0]
    assert buckets.take_token("a") == pytest.approx(0.1)
    assert buckets.take_token("b") == 0.0
    now[0] += 0.11
    assert buckets.take_token("a") == 0.0
    now[0] += 1000
    assert [buckets.take_token("a") > 0 for _ in range(4)] == [False, False, False, True]


def test_writes_are_limited_except_for_an_experiment_of_36_variants(sqlite_url, settings):
    body = {"name": "x", "variants": [{"name": f"v{number}"} for number in range(36)], "seeds": [0]}
    with client_of_service(settings.model_copy(update={"writes_per_second": 0.1}), sqlite_url) as client:
        assert client.post("/api/v1/experiments", json=body).status_code == 201
        checks = [client.post("/api/v1/validate", json={}).status_code for _ in range(36)]
        runs = [run["id"] for run in client.get("/api/v1/runs").json()["items"]]
        stop_response = client.post(f"/api/v1/runs/{runs[0]}/stop")
        rejected_response = client.post(f"/api/v1/runs/{runs[1]}/stop")
        assert client.get(f"/api/v1/runs/{runs[1]}").json()["status"] == "queued"
    assert set(checks) == {200}
    assert (stop_response.status_code, rejected_response.status_code) == (202, 429)
    assert int(rejected_response.headers["retry-after"]) in range(1, 11)
    assert "was not carried out" in rejected_response.json()["detail"]


@pytest.mark.parametrize("secret", SECRET_TEXTS)
def test_a_secret_is_refused_everywhere_text_is_stored(client, secret):
    launch = {"name": "x", "variants": [{"name": "a"}]}
    run = client.post("/api/v1/experiments", json=launch).json()["runs"][0]["id"]
    requests = [
        ("POST", "/api/v1/experiments", launch | {"name": f"my {secret}"}),
        ("POST", "/api/v1/experiments", launch | {"notes": secret}),
        ("POST", "/api/v1/experiments", launch | {"tags": [secret]}),
        ("POST", "/api/v1/experiments", launch | {"variants": [{"name": secret}]}),
        (
            "POST",
            "/api/v1/experiments",
            launch | {"base": {"problems": [{"name": "plugin", "params": {secret: 1}}]}},
        ),
        ("PATCH", f"/api/v1/runs/{run}", {"notes": secret}),
        ("PATCH", f"/api/v1/runs/{run}", {"name": secret}),
        ("POST", f"/api/v1/runs/{run}/clone", {"name": secret}),
        ("POST", "/api/v1/validate", {"policy": {"name": secret}}),
        ("POST", "/api/v1/problems/preview", {"problems": [{"name": secret}]}),
    ]
    for method, path, body in requests:
        response = client.request(method, path, json=body)
        assert response.status_code == 422, (path, body)
        assert "looks like a secret" in response.text
        assert secret not in response.text
    assert (
        client.post("/api/v1/experiments", json=launch, headers={"Idempotency-Key": secret}).status_code
        == 422
    )


@pytest.mark.parametrize(
    ("settings", "phrase"),
    [
        ({"host": "0.0.0.0"}, "choose a token"),
        ({"host": "0.0.0.0", "grpolab_token": "x" * 64}, "choose a token"),
        ({"host": "::", "allowed_hosts": ("lab",)}, "choose a token"),
        (
            {"host": "10.0.0.1", "grpolab_token": "short", "allowed_hosts": ("lab",)},
            "fewer than 20 characters",
        ),
        (
            {"host": "lab", "grpolab_token": "x" * 64, "grpolab_viewer_token": "y"},
            "GRPOLAB_VIEWER_TOKEN has fewer",
        ),
        (
            {"grpolab_viewer_token": "${GRPOLAB_VIEWER_TOKEN:-}"},
            "GRPOLAB_VIEWER_TOKEN is an unexpanded variable",
        ),
        ({"grpolab_token": "${GRPOLAB_TOKEN:?choose one}"}, "GRPOLAB_TOKEN is an unexpanded variable"),
        ({"grpolab_token": "same", "grpolab_viewer_token": "same"}, "every viewer would be an operator"),
    ],
)
def test_the_service_does_not_start_if_it_would_be_open_to_the_network(settings, phrase):
    with pytest.raises(CannotStart, match=phrase):
        check_exposure(Settings(**settings))


def test_the_service_starts_on_localhost_or_with_protection():
    check_exposure(Settings())
    check_exposure(Settings(host="0.0.0.0", grpolab_token="x" * 20, allowed_hosts=("lab",)))
