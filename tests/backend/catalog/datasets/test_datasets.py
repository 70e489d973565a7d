"""Tests of dataset uploads: what is stored, what is refused, and that refused uploads leave nothing."""

import gzip
import hashlib
from pathlib import Path

import pytest
import zstandard

GOOD = b'{"prompt": "1+1=?", "answer": "2"}\n{"prompt": "1+2=?", "answer": 3}\n'
RAW = {"Content-Type": "application/octet-stream"}


def put(client, content, name="sums.jsonl", **params):
    return client.post("/api/v1/datasets", params={"name": name, **params}, content=content, headers=RAW)


def stored_files(settings) -> list[str]:
    """Return the names of all files in the upload directory except its lock."""
    files = Path(settings.datasets_dir).rglob("*")
    return sorted(path.name for path in files if path.is_file() and path.name != ".lock")


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("sums.jsonl", lambda content: content),
        ("sums.jsonl.gz", gzip.compress),
        ("two members.JSONL.GZ", lambda content: gzip.compress(content[:9]) + gzip.compress(content[9:])),
        ("sums.jsonl.zst", zstandard.compress),
        ("two frames.jsonl.zst", lambda c: zstandard.compress(c[:40]) + zstandard.compress(c[40:])),
    ],
)
def test_a_data_set_is_kept_under_the_hash_of_what_is_in_it(client, settings, name, pack):
    answer = put(client, pack(GOOD), name)
    assert answer.status_code == 201, answer.text
    sha256 = hashlib.sha256(GOOD).hexdigest()
    uploaded = answer.json()
    assert (uploaded["path"], uploaded["sha256"], uploaded["rows"]) == (f"uploads/{sha256}.jsonl", sha256, 2)
    assert (uploaded["name"], uploaded["bytes"]) == (name, len(GOOD))
    assert (settings.datasets_dir / uploaded["path"]).read_bytes() == GOOD
    assert client.get("/api/v1/datasets").json()["items"] == [uploaded]


def test_a_name_is_a_label_and_never_a_path(client, settings):
    name = "../../../etc/\u202epasswd<img src=x>\n.jsonl"
    assert put(client, GOOD, name).json()["name"] == name
    sha256 = hashlib.sha256(GOOD).hexdigest()
    assert stored_files(settings) == [f"{sha256}.json", f"{sha256}.jsonl"]


def test_other_columns_are_named_by_whoever_uploads(client):
    content = b'{"ask": "a", "tell": "1"}\n{"ask": "b", "tell": "2"}\n'
    refused = put(client, content).json()["errors"][0]["message"]
    assert refused == "field 'prompt' is missing; the fields are 'ask', 'tell'"
    assert put(client, content, prompt_field="ask", answer_field="tell").status_code == 201


@pytest.mark.parametrize(
    "name", ["data.zip", "data.tar.gz", "data.jsonl.tar", "data.json", "jsonl", "a.jsonl.xz"]
)
def test_what_is_no_jsonl_by_its_name_is_refused(client, settings, name):
    answer = put(client, GOOD, name)
    assert (answer.status_code, answer.json()["errors"][0]["path"]) == (422, "name")
    assert stored_files(settings) == []


def test_more_than_the_limit_is_refused_also_when_the_length_is_not_told(client, settings):
    body = b'{"prompt": "1", "answer": "1"}\n' * 1000
    for content in (body, iter([body] * 3)):
        answer = put(small(client), content)
        assert answer.status_code == 413
        assert "at most 10,000 bytes" in answer.json()["detail"]
    assert stored_files(settings) == []


def test_what_unpacks_to_more_than_the_limit_is_refused(client, settings):
    answer = put(small(client), gzip.compress(b'{"prompt": "1", "answer": "1"}\n' * 1000), "a.jsonl.gz")
    assert answer.status_code == 422
    assert "is larger than 10,000 bytes when unpacked" in answer.json()["detail"]
    assert stored_files(settings) == []


def small(client):
    """Return the same service with a lower upload limit."""
    lab = client.app.state.lab
    client.app.state.lab = type(lab)(
        lab.settings.model_copy(update={"upload_bytes": 10_000}), lab.engine, lab.sessions
    )
    return client


def test_a_data_set_that_no_run_needs_is_deleted(client, settings):
    uploaded = put(client, GOOD).json()
    assert client.delete(f"/api/v1/datasets/{uploaded['sha256']}").json() == uploaded
    assert stored_files(settings) == []
    assert client.get("/api/v1/datasets").json()["items"] == []
    assert client.delete(f"/api/v1/datasets/{uploaded['sha256']}").status_code == 404
