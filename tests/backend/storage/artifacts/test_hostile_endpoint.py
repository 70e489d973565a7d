"""Tests of a hostile S3 endpoint: no call reads without end, is redirected or outlives its deadline."""

import time
from itertools import count

import pytest

from backend.storage.artifacts import bounded_http
from backend.storage.artifacts import store as module
from backend.storage.artifacts.store import ArtifactFault, ArtifactStore, BadCopy
from tests.hostile_server import endless, hostile_server

RUN, NAME = "01JRUN", "s000002-a1"
XML_RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nConnection: close\r\n\r\n"
HEAD_RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"


@pytest.fixture
def ask_endpoint(monkeypatch, tmp_path):
    """A function that runs a test against an endpoint with these responses, given (store, server)."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "made-up")

    def make_store(server):
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        return ArtifactStore("s3://bucket/lab", tmp_path)

    return make_store


def listing(number):
    key = f"lab/{RUN}/{NAME}/{number}.safetensors"
    entry = f"<Key>{key}</Key><Size>1</Size><LastModified>2026-01-01T00:00:00Z</LastModified><ETag>e</ETag>"
    page = f"<Contents>{entry}</Contents>"
    page += f"<IsTruncated>true</IsTruncated><NextContinuationToken>{number}</NextContinuationToken>"
    body = f"<?xml version='1.0'?><ListBucketResult>{page}</ListBucketResult>".encode()
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def test_an_endless_page_of_a_listing_is_abandoned(ask_endpoint):
    with hostile_server(lambda _: endless(XML_RESPONSE, b"<a/>" * 10_000)) as server:
        with pytest.raises(ArtifactFault, match="it answers with more than 4,000,000 bytes"):
            ask_endpoint(server).list_copies(RUN)
        assert server.cut.wait(60)


def test_a_listing_of_endless_pages_is_abandoned(ask_endpoint, monkeypatch):
    monkeypatch.setattr(bounded_http, "MAX_CALL_BYTES", 4_000)
    numbers = count()
    with hostile_server(lambda _: iter([listing(next(numbers))])) as server:
        store = ask_endpoint(server)
        for call in (store.list_copies, store.remove_run):
            with pytest.raises(ArtifactFault, match="it answers with more than 4,000 bytes in all"):
                call(RUN)
        assert next(numbers) < 1000


@pytest.mark.parametrize("length", [b"", b"Content-Length: 100000000000\r\n"], ids=["no length", "a length"])
def test_an_endless_file_is_abandoned(ask_endpoint, tmp_path, length):
    head = b"HTTP/1.1 206 Partial Content\r\n" + length + b"\r\n"

    def answer(request_line):
        return iter([HEAD_RESPONSE]) if request_line.startswith("HEAD") else endless(head, b"x" * 65536)

    with hostile_server(answer) as server:
        store = ask_endpoint(server)
        for call in (store.manifest, lambda path: store.open(path).read(10)):
            server.cut.clear()
            with pytest.raises(ArtifactFault, match=r"it answers with (more than 10|100,000,000,000)"):
                call(tmp_path / "runs" / RUN / NAME)
            assert server.cut.wait(60)


def test_a_file_that_ends_too_early_is_a_bad_copy(ask_endpoint, tmp_path):
    def answer(request_line):
        return (
            iter([HEAD_RESPONSE])
            if request_line.startswith("HEAD")
            else iter([b"HTTP/1.1 206 P\r\nContent-Length: 3\r\n\r\nxyz"])
        )

    with hostile_server(answer) as server, pytest.raises(BadCopy, match="gives 3 bytes instead of 100"):
        ask_endpoint(server).manifest(tmp_path / "runs" / RUN / NAME)


@pytest.mark.parametrize("status", [301, 307])
def test_a_redirect_is_not_followed(ask_endpoint, status):
    with hostile_server(lambda _: iter([XML_RESPONSE])) as other_server:
        head = f"HTTP/1.1 {status} Go\r\nLocation: {other_server.url}/\r\nContent-Length: 0\r\n\r\n".encode()
        with hostile_server(lambda _: iter([head])) as server:
            store = ask_endpoint(server)
            for call in (store.try_out, lambda: store.list_copies(RUN)):
                with pytest.raises(ArtifactFault, match=rf"a redirect \({status}\), which is not followed"):
                    call()
        assert other_server.heads == []


@pytest.mark.parametrize("opening", [b"HTTP/1.1 200 OK\r\nA: ", XML_RESPONSE], ids=["header", "body"])
def test_a_connection_is_closed_at_the_deadline(ask_endpoint, monkeypatch, opening):
    monkeypatch.setattr(module, "CALL_SECONDS", 0.5)

    def answer(_):
        yield opening
        while True:
            time.sleep(0.01)
            yield b"x"

    with hostile_server(answer) as server:
        store = ask_endpoint(server)
        while not server.heads:  # the first call may need all of its time to prepare the client
            with pytest.raises(ArtifactFault, match="no answer within"):
                store.list_copies(RUN)
        assert server.cut.wait(60)
