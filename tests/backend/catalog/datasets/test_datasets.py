"""Uploading datasets: what is kept, what is refused, and that nothing is left of what was refused."""

import gzip
import hashlib
import json
from pathlib import Path

import pytest
import zstandard

from backend.config.rows import MAX_LINE_BYTES
from tests.backend.catalog.datasets.bad_datasets import BAD

GOOD = b'{"prompt": "1+1=?", "answer": "2"}\n{"prompt": "1+2=?", "answer": 3}\n'
RAW = {"Content-Type": "application/octet-stream"}


def put(client, content, name="sums.jsonl", **params):
    return client.post("/api/v1/datasets", params={"name": name, **params}, content=content, headers=RAW)


def stored_files(settings) -> list[str]:
    """Names of all files of the directory of uploads, but for its lock."""
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
    shown = answer.json()
    assert (shown["path"], shown["sha256"], shown["rows"]) == (f"uploads/{sha256}.jsonl", sha256, 2)
    assert (shown["name"], shown["bytes"]) == (name, len(GOOD))
    assert (settings.datasets_dir / shown["path"]).read_bytes() == GOOD
    assert client.get("/api/v1/datasets").json()["items"] == [shown]


def test_the_same_content_is_kept_once(client, settings):
    first = put(client, GOOD, "first.jsonl")
    again = put(client, gzip.compress(GOOD), "again.jsonl.gz")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    assert len(stored_files(settings)) == 2


def test_a_name_is_a_label_and_never_a_path(client, settings):
    name = "../../../etc/\u202epasswd<img src=x>\n.jsonl"
    assert put(client, GOOD, name).json()["name"] == name
    sha256 = hashlib.sha256(GOOD).hexdigest()
    assert stored_files(settings) == [f"{sha256}.json", f"{sha256}.jsonl"]


def test_two_hundred_bad_files_are_refused_with_their_lines_and_leave_nothing(client, settings):
    wrong = []
    for bad in BAD:
        answer = put(client, bad.content, bad.name)
        told = (
            answer.json()["errors"][0] if answer.status_code == 422 else {"path": "", "message": answer.text}
        )
        path = f"line {bad.line}" if bad.line else "file"
        if told["path"] != path or bad.reason not in told["message"] or stored_files(settings):
            wrong.append((bad.defect, answer.status_code, told, stored_files(settings)))
    assert wrong == []
    assert len(BAD) >= 200


def test_the_first_twenty_errors_are_told(client):
    answer = put(client, b"nonsense\n" * 100 + GOOD)
    assert [error["path"] for error in answer.json()["errors"]] == [f"line {n}" for n in range(1, 21)]


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


def test_only_a_raw_body_is_taken(client, settings):
    answer = client.post("/api/v1/datasets", params={"name": "a.jsonl"}, files={"file": ("a.jsonl", GOOD)})
    assert answer.status_code == 415
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
    """The same service with a lower limit."""
    lab = client.app.state.lab
    client.app.state.lab = type(lab)(
        lab.settings.model_copy(update={"upload_bytes": 10_000}), lab.engine, lab.sessions
    )
    return client


def test_a_data_set_that_no_run_needs_is_deleted(client, settings):
    shown = put(client, GOOD).json()
    assert client.delete(f"/api/v1/datasets/{shown['sha256']}").json() == shown
    assert stored_files(settings) == []
    assert client.get("/api/v1/datasets").json()["items"] == []
    assert client.delete(f"/api/v1/datasets/{shown['sha256']}").status_code == 404


def test_the_operators_own_files_are_offered_too(client, settings, tmp_path):
    (settings.datasets_dir / "math").mkdir(parents=True)
    (settings.datasets_dir / "math" / "own.jsonl").write_bytes(GOOD)
    (settings.datasets_dir / "notes.txt").write_text("no dataset")
    (tmp_path / "secret.jsonl").write_bytes(GOOD)
    (settings.datasets_dir / "out.jsonl").symlink_to(tmp_path / "secret.jsonl")
    uploaded = put(client, GOOD + GOOD).json()
    items = client.get("/api/v1/datasets").json()["items"]
    assert [item["path"] for item in items] == [uploaded["path"], "math/own.jsonl"]


def test_a_directory_that_cannot_be_written_to_is_one_clear_sentence(client, settings):
    settings.datasets_dir.mkdir()
    (settings.datasets_dir / "uploads").write_text("a file where the directory belongs")
    answer = put(client, GOOD)
    assert answer.status_code == 507
    assert answer.json()["detail"].startswith(f"cannot write to DATASETS_DIR ({settings.datasets_dir}): ")


def test_the_longest_line_and_the_strangest_text_are_kept(client):
    texts = ["x" * (MAX_LINE_BYTES - 60), "\0\u202e\u200b\U0001f468\u200d", "=1+1", "</script>\u2028"]
    rows = [
        json.dumps({"prompt": text, "answer": "1"}, ensure_ascii=number % 2 == 0)
        for number, text in enumerate(texts)
    ]
    answer = put(client, "\r\n".join(rows).encode())
    assert answer.status_code == 201, answer.text
    problem = {"name": "file", "path": answer.json()["path"]}
    shown = client.post("/api/v1/problems/preview", json={"problems": [problem]})
    assert "tokens; expected at most" in shown.json()["detail"]  # the built-in policy cannot take the first
