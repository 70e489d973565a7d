"""Tests of datasets, which are checked line by line with errors that name line, value and expectation."""

import json
from pathlib import Path

import pytest

from backend.config.columns import Columns
from backend.config.jsonl import BadDataset, held_out_keys, index_dataset, read_row, resolve_dataset
from backend.config.metrics import find_metric
from backend.config.rows import EVAL, TRAIN, UNMARKED

VALID_ROWS = b'{"prompt": "1+1=?", "answer": "2"}\n{"prompt": "1+2=?", "answer": 3, "level": "easy"}\n'


def complaints(tmp_path: Path, content: bytes) -> list[tuple[int, str]]:
    path = tmp_path / "data.jsonl"
    path.write_bytes(content)
    with pytest.raises(BadDataset) as error_info:
        index_dataset(path, Columns())
    return [(error.line, error.reason) for error in error_info.value.errors]


def test_a_valid_file_is_indexed_and_its_rows_are_read_back(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_bytes(VALID_ROWS)
    index = index_dataset(path, Columns())
    assert len(index) == 2
    assert read_row(index, 1) == {"prompt": "1+2=?", "answer": 3, "level": "easy"}


def test_the_hash_covers_the_whole_content(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'{"prompt":"a","answer":"1"}\n\n{"prompt":"b","answer":"2"}')
    # sha256sum of these bytes
    assert (
        index_dataset(path, Columns()).sha256
        == "2a23bc419e4bf04994e66fdeacec04199452939e7acebf2f7d2b2f9fd3d8ed77"
    )


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"prompt": "x", "answer": "1"', "is not JSON at column 30 (Expecting ',' delimiter)"),
        (b"[1, 2]", 'expected a JSON object, got "[1, 2]"'),
        (b'"text"', "expected a JSON object"),
        (b'{"answer": "1"}', "field 'prompt' is missing; the fields are 'answer'"),
        (b'{"prompt": "x"}', "field 'answer' is missing; the fields are 'prompt'"),
        (b"{}", "field 'prompt' is missing; the fields are none"),
        (
            b'{"prompt": "  ", "answer": "1"}',
            "field 'prompt': expected text that is not empty, got \"  \"",
        ),
        (b'{"prompt": 5, "answer": "1"}', "field 'prompt': expected text that is not empty, got 5"),
        (b'{"prompt": "x", "answer": null}', "field 'answer': expected text or a number, got null"),
        (b'{"prompt": "x", "answer": true}', "field 'answer': expected text or a number, got true"),
        (b'{"prompt": "x", "answer": ["1"]}', "field 'answer': expected text or a number, got [\"1\"]"),
        (b'{"prompt": "x", "answer": ""}', "field 'answer': expected text or a number, got \"\""),
        (b'{"prompt": "x", "answer": NaN}', "number NaN is not finite"),
        (b'{"prompt": "x", "answer": -Infinity}', "number -Infinity is not finite"),
        (b'{"prompt": "x", "answer": 1e999}', "number 1e999 is not finite"),
        (b'{"prompt": "x", "prompt": "y", "answer": "1"}', 'key "prompt" occurs twice'),
        (b'{"prompt": "x", "answer": "1", "n": {"a": 1, "a": 2}}', 'key "a" occurs twice'),
        (b'{"prompt": "\xff", "answer": "1"}', "is not UTF-8 at byte 13 (invalid start byte)"),
        (b'{"prompt": "\\ud800", "answer": "1"}', "holds a lone surrogate"),
        (
            b'{"prompt": "x", "answer": "1", "split": "dev"}',
            "field 'split': expected one of train, eval, test, validation",
        ),
        (
            b'{"prompt": "x", "answer": "1", "domain": []}',
            "field 'domain': expected 1 to 32 of a-z, 0-9, _ and -, the first a letter or digit, got []",
        ),
        (
            b'{"prompt": "x", "answer": "1", "n": ' + b"9" * 5000 + b"}",
            "a number of 5,000 digits: expected at most 4,300",
        ),
        (
            b'{"prompt": "x", "answer": "1", "n": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
            "nested too deeply",
        ),
        (b'{"prompt": "' + b"x" * 256_000 + b'", "answer": "1"}', "is longer than 256,000 bytes"),
    ],
)
def test_a_bad_line_is_named_with_its_number_field_and_value(tmp_path, line, reason):
    [(number, complaint)] = complaints(tmp_path, VALID_ROWS + line + b"\n" + VALID_ROWS)
    assert number == 3
    assert reason in complaint


@pytest.mark.parametrize("content", [b"", b"\n\n  \n"])
def test_a_file_without_rows_is_refused(tmp_path, content):
    [(line, reason)] = complaints(tmp_path, content)
    assert line == 0
    assert reason.startswith("has no row")


def test_one_question_is_too_few_because_one_is_held_out(tmp_path):
    [(_, reason)] = complaints(tmp_path, b'{"prompt": "x", "answer": "1"}\n' * 3)
    assert reason.startswith("has only one question")


def test_other_columns_can_be_named(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_bytes(b'{"q": "a", "a": "1"}\n{"q": "b", "a": "2"}\n')
    assert len(index_dataset(path, Columns("q", "a"))) == 2
    assert "field 'prompt' is missing" in complaints(tmp_path, path.read_bytes())[0][1]


def test_a_line_of_exactly_the_maximum_length_is_read(tmp_path):
    filler = 256_000 - len(b'{"prompt": "", "answer": "1"}')
    line = b'{"prompt": "' + b"x" * filler + b'", "answer": "1"}'
    path = tmp_path / "data.jsonl"
    path.write_bytes(line + b"\r\n" + VALID_ROWS)
    index = index_dataset(path, Columns())
    assert len(read_row(index, 0)["prompt"]) == filler


def test_a_file_that_changes_while_in_use_is_detected(tmp_path):
    path = tmp_path / "data.jsonl"
    path.write_bytes(VALID_ROWS)
    index = index_dataset(path, Columns())
    path.write_bytes(VALID_ROWS + VALID_ROWS)
    with pytest.raises(BadDataset, match="has changed while it was in use"):
        read_row(index, 0)


def test_the_questions_with_the_lowest_hashes_are_held_out():
    assert held_out_keys([50, 10, 40, 20, 30], [UNMARKED] * 5, 0.4) == {10, 20}


def test_at_least_one_question_is_held_out():
    assert held_out_keys([5, 3, 9], [UNMARKED] * 3, 0.01) == {3}


def test_a_row_marked_by_its_split_decides_for_all_rows_of_its_question():
    assert held_out_keys([1, 2, 1, 3], [TRAIN, TRAIN, EVAL, TRAIN], 0.5) == {1}


@pytest.mark.parametrize(
    "name", ["../secret.jsonl", "/etc/passwd", "a/../../secret.jsonl", "a\0b", "missing.jsonl", "."]
)
def test_only_files_inside_the_data_directory_are_found(tmp_path, name):
    (tmp_path / "secret.jsonl").write_bytes(VALID_ROWS)
    root = tmp_path / "datasets"
    root.mkdir()
    with pytest.raises(ValueError, match="DATASETS_DIR"):
        resolve_dataset(root, name)


@pytest.mark.parametrize(
    ("link", "target", "name"), [("link.jsonl", "secret.jsonl", "link.jsonl"), ("up", ".", "up/secret.jsonl")]
)
def test_a_link_that_leaves_the_data_directory_is_refused(tmp_path, link, target, name):
    (tmp_path / "secret.jsonl").write_bytes(VALID_ROWS)
    root = tmp_path / "datasets"
    root.mkdir()
    (root / link).symlink_to(tmp_path / target)
    with pytest.raises(ValueError, match="leads out of DATASETS_DIR"):
        resolve_dataset(root, name)


@pytest.mark.parametrize("domain", ["", "a/b", "Math", "a b", "x" * 33, "math\n", True, None, 1.5])
def test_a_domain_that_is_not_a_valid_metric_name_is_refused_with_its_line(
    tmp_path: Path, domain: object
) -> None:
    path = tmp_path / "rows.jsonl"
    valid_row = {"prompt": "1+1", "answer": "2", "domain": "math-1"}
    path.write_text(
        json.dumps(valid_row) + "\n" + json.dumps({**valid_row, "prompt": "1+2", "domain": domain}) + "\n"
    )
    with pytest.raises(BadDataset) as error_info:
        index_dataset(path, Columns())
    assert [error.line for error in error_info.value.errors] == [2]
    assert "field 'domain'" in str(error_info.value)


def test_a_file_has_at_most_32_domains_and_each_is_in_the_catalog(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [json.dumps({"prompt": f"q{n}", "answer": "2", "domain": n}) for n in range(33)]
    path.write_text("\n".join(rows[:32]))
    assert len(index_dataset(path, Columns())) == 32
    family = find_metric("eval/accuracy/31")
    assert family is not None
    assert family.name == "eval/accuracy/<domain>"
    path.write_text("\n".join(rows))
    with pytest.raises(BadDataset, match="line 33: field 'domain': expected at most 32 domains"):
        index_dataset(path, Columns())
