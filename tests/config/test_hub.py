"""Tests of finding a hub dataset's newest commit, with a local server as the hub."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from backend.base.errors import InvalidConfig
from backend.config import hub
from backend.config.problems import HubProblem
from backend.config.run import RunConfig
from backend.config.sources import pin_sources

COMMIT = "a" * 40


class Hub(BaseHTTPRequestHandler):
    answers: ClassVar[dict[str, tuple[int, bytes]]] = {}
    requested_paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.requested_paths.append(self.path)
        status, body = self.answers.get(self.path, (404, b"{}"))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def served(monkeypatch) -> Iterator[type[Hub]]:
    server = HTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}/")
    hub.newest_commit.cache_clear()
    Hub.answers, Hub.requested_paths = {}, []
    yield Hub
    server.shutdown()
    thread.join()
    server.server_close()


def address(dataset: str) -> str:
    return f"/api/datasets/{dataset}/revision/refs%2Fconvert%2Fparquet"


def find_error(source: HubProblem, tmp_path) -> tuple[str, str]:
    with pytest.raises(InvalidConfig) as error_info:
        pin_sources(RunConfig(problems=(source,)), datasets_dir=tmp_path)
    [error] = error_info.value.errors
    return error.path, error.message


def test_a_launch_fills_in_the_newest_commits_and_requests_them_once(served, tmp_path):
    commits = {"a/b": COMMIT, "c/d": "b" * 40}
    served.answers = {
        address(name): (200, json.dumps({"sha": sha}).encode()) for name, sha in commits.items()
    }
    source = HubProblem(dataset="a/b", eval_dataset="c/d", eval_split="test")
    for _ in range(2):
        [source_pinned] = pin_sources(RunConfig(problems=(source,)), datasets_dir=tmp_path).problems
        assert isinstance(source_pinned, HubProblem)
        assert (source_pinned.revision, source_pinned.eval_revision) == (COMMIT, "b" * 40)
    assert served.requested_paths == [address("a/b"), address("c/d")]


def test_a_named_commit_is_not_requested(served, tmp_path):
    source = HubProblem(dataset="a/b", revision=COMMIT)
    assert pin_sources(RunConfig(problems=(source,)), datasets_dir=tmp_path).problems == (source,)
    assert served.requested_paths == []


def test_a_missing_dataset_is_named_at_its_field(served, tmp_path):
    path, message = find_error(HubProblem(dataset="a/b"), tmp_path)
    assert path == "problems.0.dataset"
    assert message == "the Hugging Face hub has no public dataset 'a/b' in Parquet"


@pytest.mark.parametrize(
    "answer",
    [b"", b"[]", b"null", b"<html>", b'{"sha": 3}', b'{"sha": "main"}', b'{"sha": "' + b"A" * 40 + b'"}'],
)
def test_an_invalid_response_is_refused(served, tmp_path, answer):
    served.answers = {address("a/b"): (200, answer)}
    assert find_error(HubProblem(dataset="a/b"), tmp_path)[1].endswith("sent an invalid response")


def test_a_failing_or_unreachable_hub_is_reported(served, tmp_path, monkeypatch):
    served.answers = {address("a/b"): (503, b"")}
    assert "the Hugging Face hub responded with 503" in find_error(HubProblem(dataset="a/b"), tmp_path)[1]
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    assert (
        "the Hugging Face hub cannot be reached ([Errno" in find_error(HubProblem(dataset="a/b"), tmp_path)[1]
    )
    monkeypatch.setenv("HF_ENDPOINT", "file:///etc")
    assert (
        "HF_ENDPOINT: expected an address with https://" in find_error(HubProblem(dataset="a/b"), tmp_path)[1]
    )
