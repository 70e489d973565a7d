"""Tests that the form names unreachable sampling servers, and only to operators."""

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from backend.config.run import RunConfig
from backend.experiments import engine_reach
from backend.experiments.engine_reach import engine_warnings
from tests.api_client import VIEWER_TOKEN, client_of_service

SERVED_CONFIG = RunConfig.model_validate({"sampling": {"engine": {"type": "server"}}})


@pytest.fixture(autouse=True)
def clear_known(monkeypatch):
    monkeypatch.setattr(engine_reach, "_known", {})


class Server(ThreadingHTTPServer):
    """A server that answers with `status` and records the paths of requests in `asked`."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.status = 200
        self.asked: list[str] = []


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        self.server.asked.append(self.path)
        self.send_response(self.server.status)
        self.send_header("Location", "http://127.0.0.1:9/elsewhere")
        self.end_headers()

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def format_address(server):
    return f"http://127.0.0.1:{server.server_port}"


@pytest.fixture
def unused_address():
    """An address at which nothing listens."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound but not listening, so that no other process gets the port
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def has_warning(settings, *urls, config=SERVED_CONFIG):
    return engine_warnings(config, settings.model_copy(update={"engine_url": ",".join(urls)}))


def test_only_a_server_that_does_not_answer_is_named(settings, server, unused_address):
    assert has_warning(settings, format_address(server)) == []
    (sentence,) = has_warning(settings, format_address(server), unused_address)
    assert sentence.startswith(
        "sampling.engine: 1 of 2 sampling servers cannot be reached from the service: "
    )
    assert f"{unused_address} (connection refused)" in sentence
    assert format_address(server) not in sentence


def test_responses_are_cached_redirects_not_followed_and_errors_named(settings, server, monkeypatch):
    server.status = 307
    for _ in range(3):
        assert has_warning(settings, format_address(server)) == []
    assert server.asked == ["/health"]
    monkeypatch.setattr(engine_reach, "CACHE_SECONDS", -1)
    server.status = 503
    assert "it answers with status 503" in has_warning(settings, format_address(server))[0]


def test_operators_are_warned_and_a_viewer_causes_no_request(settings, sqlite_url, server, monkeypatch):
    server.status = 503
    monkeypatch.setattr("backend.experiments.catalog.resolve_runnable", lambda *_: SERVED_CONFIG)
    served_settings = settings.model_copy(update={"engine_url": format_address(server)})
    with client_of_service(served_settings, sqlite_url, token=VIEWER_TOKEN) as viewer:
        validation = viewer.post("/api/v1/validate", json={})
        assert validation.status_code == 200, validation.text
        assert server.asked == []
    with client_of_service(served_settings, sqlite_url) as operator:
        validation = operator.post("/api/v1/validate", json={})
    assert "status 503" in validation.json()["warnings"][0]
