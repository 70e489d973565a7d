"""Tests of dataset uploads: what is stored, what is refused, and that refused uploads leave nothing."""

import gzip
import hashlib
from pathlib import Path

import pytest
import zstandard

VALID_ROWS = b'{"prompt": "1+1=?", "answer": "2"}\n{"prompt": "1+2=?", "answer": 3}\n'
BINARY_HEADERS = {"Content-Type": "application/octet-stream"}


def upload(client, content, name="sums.jsonl", **params):
    return client.post(
        "/api/v1/datasets", params={"name": name, **params}, content=content, headers=BINARY_HEADERS
    )


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
def test_a_dataset_is_stored_under_the_hash_of_its_content(client, settings, name, pack):
    response = upload(client, pack(VALID_ROWS), name)
    assert response.status_code == 201, response.text
    sha256 = hashlib.sha256(VALID_ROWS).hexdigest()
    uploaded_dataset = response.json()
    assert (uploaded_dataset["path"], uploaded_dataset["sha256"], uploaded_dataset["rows"]) == (
        f"uploads/{sha256}.jsonl",
        sha256,
        2,
    )
    assert (uploaded_dataset["name"], uploaded_dataset["bytes"]) == (name, len(VALID_ROWS))
    assert (settings.datasets_dir / uploaded_dataset["path"]).read_bytes() == VALID_ROWS
    assert client.get("/api/v1/datasets").json()["items"] == [uploaded_dataset]


def test_a_name_is_a_label_and_never_a_path(client, settings):
    name = "../../../etc/\u202epasswd<img src=x>\n.jsonl"
    assert upload(client, VALID_ROWS, name).json()["name"] == name
    sha256 = hashlib.sha256(VALID_ROWS).hexdigest()
    assert stored_files(settings) == [f"{sha256}.json", f"{sha256}.jsonl"]


def test_the_uploader_can_name_other_columns(client):
    content = b'{"ask": "a", "tell": "1"}\n{"ask": "b", "tell": "2"}\n'
    message = upload(client, content).json()["errors"][0]["message"]
    assert message == "field 'prompt' is missing; the fields are 'ask', 'tell'"
    assert upload(client, content, prompt_field="ask", answer_field="tell").status_code == 201


@pytest.mark.parametrize(
    "name", ["data.zip", "data.tar.gz", "data.jsonl.tar", "data.json", "jsonl", "a.jsonl.xz"]
)
def test_a_file_name_other_than_jsonl_is_refused(client, settings, name):
    response = upload(client, VALID_ROWS, name)
    assert (response.status_code, response.json()["errors"][0]["path"]) == (422, "name")
    assert stored_files(settings) == []


def test_an_upload_over_the_limit_is_refused_even_without_a_content_length(client, settings):
    body = b'{"prompt": "1", "answer": "1"}\n' * 1000
    for content in (body, iter([body] * 3)):
        response = upload(with_small_limit(client), content)
        assert response.status_code == 413
        assert "at most 10,000 bytes" in response.json()["detail"]
    assert stored_files(settings) == []


def test_a_file_that_decompresses_beyond_the_limit_is_refused(client, settings):
    response = upload(
        with_small_limit(client), gzip.compress(b'{"prompt": "1", "answer": "1"}\n' * 1000), "a.jsonl.gz"
    )
    assert response.status_code == 422
    assert "is larger than 10,000 bytes when unpacked" in response.json()["detail"]
    assert stored_files(settings) == []


def with_small_limit(client):
    """Return the same service with a lower upload limit."""
    lab = client.app.state.lab
    client.app.state.lab = type(lab)(
        lab.settings.model_copy(update={"upload_bytes": 10_000}), lab.engine, lab.sessions
    )
    return client


def test_an_unused_dataset_can_be_deleted(client, settings):
    uploaded_dataset = upload(client, VALID_ROWS).json()
    assert client.delete(f"/api/v1/datasets/{uploaded_dataset['sha256']}").json() == uploaded_dataset
    assert stored_files(settings) == []
    assert client.get("/api/v1/datasets").json()["items"] == []
    assert client.delete(f"/api/v1/datasets/{uploaded_dataset['sha256']}").status_code == 404
