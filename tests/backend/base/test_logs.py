"""Tests of log lines: one per event, with ids, and without secrets or terminal escape sequences."""

import io
import json
import logging
import sys
import threading

import pytest
from sqlalchemy import select

from backend.base.logs import log_context, set_up_logging
from backend.runs.events import add_event
from backend.service.process import log_files as logfiles
from backend.storage.models import Event
from tests.api_client import client_of_service
from tests.factories import make_run

ESCAPE_SEQUENCE = "\x1b[31m"


@pytest.fixture
def log_lines(settings, monkeypatch):
    """A function that sets up logging and captures its output; hooks and handlers are restored afterwards."""
    root, hooks = logging.getLogger(), (sys.excepthook, threading.excepthook)
    saved_state = (root.handlers[:], root.level)
    stream = io.StringIO()

    def start(log_format="text"):
        set_up_logging(settings.model_copy(update={"log_format": log_format}), stream=stream)
        return lambda: stream.getvalue().splitlines()

    yield start
    root.handlers[:], root.level = saved_state[0], saved_state[1]
    sys.excepthook, threading.excepthook = hooks
    logging.captureWarnings(capture=False)


logger = logging.getLogger("backend.test")


def test_a_json_line_has_the_same_fields(log_lines):
    logged_lines = log_lines("json")
    with log_context(request_id="abc"):
        logger.info("GET", extra={"path": "/a", "ms": 3})
    logger.info("outside")
    first, second = map(json.loads, logged_lines())
    assert {name: first[name] for name in ("level", "logger", "message", "request_id", "path", "ms")} == {
        "level": "info",
        "logger": "backend.test",
        "message": "GET",
        "request_id": "abc",
        "path": "/a",
        "ms": 3,
    }
    assert "request_id" not in second


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_no_text_starts_a_line_or_moves_the_cursor(log_lines, log_format):
    logged_lines = log_lines(log_format)
    logger.info("a\n2026 CRITICAL forged\r%s\x9b\u202e\ud800", ESCAPE_SEQUENCE)
    (line,) = logged_lines()
    assert line.isprintable()
    assert "\\x1b" in line or "\\u001b" in line


def test_a_traceback_is_indented_and_cannot_forge_a_line(log_lines):
    logged_lines = log_lines()
    error = ValueError("one\n2026 CRITICAL backend: forged")
    logger.error("it failed", exc_info=error)
    head, *trace = logged_lines()
    assert "it failed" in head
    assert all(line.startswith("    | ") for line in trace)
    assert "ValueError: one" in trace[0]


def test_secrets_are_replaced_before_a_long_text_is_cut(log_lines, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "canary-canary/1")
    logged_lines = log_lines()
    logger.info("%s", "x" * 4995 + "canary-canary/1" + "y" * 20_000)
    logger.info("canary-canary%%2F1 postgresql://me:pw@host :// redis://:hidden@host hf_%s", "a" * 34)
    long_line, short_line = logged_lines()
    assert "canary" not in long_line + short_line
    assert "[sec" in long_line
    assert "characters left out" in long_line
    assert "hidden" not in short_line
    assert "me:pw" not in short_line


def test_every_response_carries_an_id_and_problem_documents_repeat_it(client):
    for path in ("/healthz", "/api/v1/runs", "/api/v1/nothing", "/static/nothing"):
        response = client.get(path)
        assert len(response.headers["x-request-id"]) == 32
        if response.status_code >= 400:
            assert response.json()["request_id"] == response.headers["x-request-id"]
    unauthorized_response = client.get("/api/v1/runs", headers={"Authorization": "Bearer wrong"})
    assert unauthorized_response.json()["request_id"] == unauthorized_response.headers["x-request-id"]


def test_history_keeps_no_secret(session, monkeypatch, settings):
    monkeypatch.setenv("HF_TOKEN", "canary-of-the-hub")
    with client_of_service(settings, str(session.get_bind().url.render_as_string(hide_password=False))):
        pass  # a service learns its secrets
    run = make_run(session)
    add_event(session, "data", "canary-of-the-hub", run_id=run.id, data={"a": [{"b": "x canary-of-the-hub"}]})
    event = session.scalars(select(Event).where(Event.kind == "data")).one()
    assert (event.message, event.data) == ("[secret]", {"a": [{"b": "x [secret]"}]})


def test_a_log_file_that_grew_too_large_is_rotated_while_it_is_written(tmp_path, monkeypatch):
    monkeypatch.setattr(logfiles, "MAX_LOG_BYTES", 100)
    log = tmp_path / "service.log"
    with log.open("ab", buffering=0) as program:
        program.write(b"old\n" * 30)
        logfiles.limit_size(log)
        program.write(b"new\n")
        logfiles.limit_size(log)
    assert log.read_text() == "new\n"
    assert (tmp_path / "service.old.log").read_text() == "old\n" * 30
