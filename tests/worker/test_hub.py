"""Tests of hostile hubs: no download takes more space than listed or available."""

import json
from itertools import count

import pytest
from huggingface_hub import close_session, constants

from backend.base.errors import InvalidConfig
from backend.config.problems import HubProblem
from backend.config.sections import PolicyConfig
from tests.hostile_server import endless, hostile_server
from tests.ports import free_port
from worker import hub
from worker.policy.model import policy_directory
from worker.problems.hub import load_hub

COMMIT = "a" * 40
FILE_PATH = "data/train.jsonl"
ROWS = b"".join(b'{"question": "%d+1=?", "answer": "?"}\n' % number for number in range(40))


@pytest.fixture
def serving(monkeypatch, tmp_path):
    """A function that connects the hub library to this server and returns its empty cache."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)

    def serving(server):
        template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, server.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        close_session()
        return cache

    yield serving
    close_session()


def sent(content, *headers):
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(content)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def listing(path, size):
    return json.dumps([{"type": "file", "path": path, "size": size, "oid": "b" * 40}]).encode()


def hub_responses(size, content=None):
    """Return responses of a hub that lists one file with this size and sends this or endless content."""
    of_file = (f"X-Repo-Commit: {COMMIT}", 'ETag: "c"')

    def answer(head):
        method, path, _ = head.split(" ", 2)
        if path.startswith("/api/"):
            yield sent(listing(FILE_PATH, size))
        elif method == "HEAD":
            yield "\r\n".join(["HTTP/1.1 200 OK", f"Content-Length: {size}", *of_file, "", ""]).encode()
        elif content is not None:
            yield sent(content, *of_file)
        else:
            yield from endless(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b"x" * 65536)

    return answer


def load():
    return load_hub(HubProblem(dataset="a/b", revision=COMMIT), seed=0, shuffled=False, hf_online=True)


def files_in(cache):
    return [path for path in cache.rglob("blobs/*") if path.is_file()]


def test_a_download_is_read_and_later_taken_from_the_cache(serving):
    with hostile_server(hub_responses(len(ROWS), ROWS)) as server:
        cache = serving(server)
        first = load().sample(0, "train")
        assert [path.read_bytes() for path in files_in(cache)] == [ROWS]
        assert sum(head.startswith("GET /datasets") for head in server.heads) == 1
    assert load().sample(0, "train") == first


def test_a_download_larger_than_the_disk_is_not_started(serving, monkeypatch):
    monkeypatch.setattr(hub, "free_bytes", lambda _: 500_000_000)
    with hostile_server(hub_responses(400_000_000)) as server:
        cache = serving(server)
        with pytest.raises(ValueError, match=rf"it has 400 MB to download, and 500 MB are free on {cache}"):
            load()
        assert not any(head.startswith("GET /datasets") for head in server.heads)


def test_an_endless_file_is_abandoned_and_removed(serving, settings, monkeypatch):
    monkeypatch.setattr(hub, "UNLISTED_BYTES", 1_000_000)
    monkeypatch.setattr("worker.policy.model.FETCHED", ["*.jsonl"])
    online = settings.model_copy(update={"hf_online": True})
    with hostile_server(hub_responses(10)) as server:
        cache = serving(server)
        reason = "the hub sends more than the 10 bytes that it lists"
        with pytest.raises(ValueError, match=reason):
            load()
        with pytest.raises(InvalidConfig, match=reason):
            policy_directory(PolicyConfig(name="a/b", revision=COMMIT), online)
        assert server.cut.wait(60)
        assert files_in(cache) == []


@pytest.mark.parametrize("status", [200, 307, 404])
def test_an_endless_response_is_abandoned(serving, monkeypatch, status):
    monkeypatch.setattr(hub, "MAX_ANSWER_BYTES", 1_000_000)
    head = f"HTTP/1.1 {status} So\r\nLocation: /api/elsewhere\r\nConnection: close\r\n\r\n".encode()
    with hostile_server(lambda _: endless(head, b" " * 65536)) as server:
        serving(server)
        with pytest.raises(ValueError, match=r"answers with more than 1\.0 MB of listings"):
            load()
        assert server.cut.wait(60)


def test_an_endless_response_after_a_redirect_is_abandoned(serving, monkeypatch):
    monkeypatch.setattr(hub, "MAX_ANSWER_BYTES", 1_000_000)

    def answer(head):
        if head.split(" ", 2)[1].startswith("/api/"):
            yield b"HTTP/1.1 307 So\r\nLocation: /large\r\nContent-Length: 0\r\n\r\n"
        else:
            yield from endless(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b" " * 65536)

    with hostile_server(answer) as server:
        serving(server)
        with pytest.raises(ValueError, match=r"answers with more than 1\.0 MB of listings"):
            load()


def test_a_client_recreated_by_the_library_is_also_bounded(serving, monkeypatch):
    monkeypatch.setattr(hub, "MAX_ANSWER_BYTES", 1_000_000)
    unused_port = free_port()

    def answer(_):
        if len(server.heads) == 1:  # the library closes its client if this fails
            location = f"Location: http://127.0.0.1:{unused_port}/"
            yield f"HTTP/1.1 307 So\r\n{location}\r\nContent-Length: 0\r\n\r\n".encode()
        else:
            yield from endless(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b" " * 65536)

    with hostile_server(answer) as server:
        serving(server)
        with pytest.raises(ValueError, match=r"answers with more than 1\.0 MB of listings"):
            load()


def test_an_endless_listing_is_abandoned(serving, monkeypatch):
    monkeypatch.setattr(hub, "MAX_ANSWER_BYTES", 10_000)
    numbers = count()

    def answer(_):
        link = f'Link: <{server.url}/api/next>; rel="next"'
        yield sent(listing(f"{next(numbers)}.jsonl", 1), link)

    with hostile_server(answer) as server:
        serving(server)
        with pytest.raises(ValueError, match="answers with more than 10 kB of listings"):
            load()
        assert next(numbers) < 1000
