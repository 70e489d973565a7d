"""Tests of Parquet and CSV uploads: rows become JSONL, and a row that cannot is named in the error."""

import csv
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.base.sandbox.process import Sandbox
from tests.backend.catalog.datasets.test_datasets import stored_files, upload
from tests.gate import first_in_gate

ROWS = [{"prompt": f"{n}+1=?", "answer": str(n + 1)} for n in range(5)]


def parquet(rows: list[dict[str, Any]] | pa.Table, **options: Any) -> bytes:
    table = rows if isinstance(rows, pa.Table) else pa.Table.from_pylist(rows)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, **options)
    return buffer.getvalue()


def as_csv(rows: list[dict[str, Any]]) -> bytes:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue().encode()


def read_stored_rows(settings, response) -> list[dict[str, Any]]:
    assert response.status_code == 201, response.text
    lines = (settings.datasets_dir / response.json()["path"]).read_text().splitlines()
    return [json.loads(line) for line in lines]


def refusal_detail(response) -> tuple[str, str]:
    assert response.status_code == 422, response.text
    error = response.json()["errors"][0]
    return error["path"], error["message"]


@pytest.mark.parametrize(("name", "content"), [("a.parquet", parquet(ROWS)), ("a.CSV", as_csv(ROWS))])
def test_a_table_is_stored_as_jsonl(client, settings, name, content):
    response = upload(client, content, name)
    assert read_stored_rows(settings, response) == ROWS
    assert (response.json()["rows"], response.json()["name"]) == (5, name)


def test_rows_keep_their_order_across_batches_and_row_groups(client, settings, monkeypatch):
    rows = [{"prompt": f"{n} " + "x" * 900, "answer": n, "level": n % 7} for n in range(2500)]
    assert read_stored_rows(settings, upload(client, parquet(rows, row_group_size=700), "a.parquet")) == rows
    texts = [{key: str(cell) for key, cell in row.items()} for row in rows]
    assert read_stored_rows(settings, upload(client, as_csv(texts), "a.csv")) == texts


def test_the_values_of_parquet_become_json(client, settings):
    further_columns = {
        "talk": [{"role": "user", "content": "x"}], "score": float("nan"),
        "when": datetime(2024, 1, 2, tzinfo=UTC),
        "cost": Decimal("1.50"), "whole": Decimal(7), "nested": {"a": [1, None]}, "id": None, "split": None,
        "domain": None,
    }  # fmt: skip
    rows = [row | further_columns for row in ROWS]
    schema = pa.Table.from_pylist(rows).schema
    for field in ("id", "split", "domain"):
        schema = schema.set(schema.get_field_index(field), pa.field(field, pa.string()))
    first = read_stored_rows(
        settings, upload(client, parquet(pa.Table.from_pylist(rows, schema)), "a.parquet")
    )[0]
    assert first == ROWS[0] | {
        "talk": [{"role": "user", "content": "x"}], "score": None, "when": "2024-01-02T00:00:00+00:00",
        "cost": 1.5, "whole": 7, "nested": {"a": [1, None]},
    }  # fmt: skip


def test_the_format_of_verl_is_read_with_dotted_columns(client, settings):
    rows = [
        {
            "data_source": "math_dapo",
            "prompt": [{"content": f"Solve {n}.", "role": "user"}],
            "ability": "MATH",
            "reward_model": {"ground_truth": str(n), "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": f"row {n}"},
        }
        for n in range(3)
    ]
    response = upload(client, parquet(rows), "dapo.parquet", answer_field="reward_model.ground_truth")
    assert read_stored_rows(settings, response)[2]["reward_model"]["ground_truth"] == "2"


def test_a_formula_in_a_csv_is_plain_text(client, settings):
    rows = [{"prompt": text, "answer": "1"} for text in ('=HYPERLINK("http://x","y")', "@SUM(1)", "+1", "-1")]
    assert read_stored_rows(settings, upload(client, as_csv(rows), "a.csv")) == rows


def test_quotes_line_breaks_and_a_byte_order_mark_are_read(client, settings):
    content = '\ufeffprompt,answer,split\r\n"a, ""b""\r\nc",1,\r\n\r\nd,2,test\r\n'.encode()
    assert read_stored_rows(settings, upload(client, content, "a.csv")) == [
        {"prompt": 'a, "b"\r\nc', "answer": "1"},
        {"prompt": "d", "answer": "2", "split": "test"},
    ]


def binary_parquet() -> pa.Table:
    return pa.table({"prompt": ["a", "b"], "answer": ["1", "2"], "image": [{"bytes": b"\xff"}] * 2})


BAD_TABLES: dict[str, tuple[str, bytes, str, str]] = {
    "no column": ("a.parquet", parquet([{"question": "a"}] * 2), "row 1", "field 'prompt' is missing"),
    "no column in CSV": ("a.csv", b"question;answer\na;1\n", "row 1", "the fields are 'question;answer'"),
    "a null": (
        "a.parquet", parquet([*ROWS, {"prompt": None, "answer": "1"}]),
        "row 6", "field 'prompt': expected text"
    ),
    "NaN": (
        "a.parquet", parquet([{"prompt": "a", "answer": float("nan")}] * 2),
        "row 1", "field 'answer': expected text"
    ),
    "infinity": (
        "a.parquet", parquet([r | {"x": float("inf")} for r in ROWS]),
        "row 1", "number Infinity is not finite"
    ),
    "lists as answers": (
        "a.parquet", parquet([{"prompt": "a", "answer": [1]}] * 2), "row 1", "field 'answer'"
    ),
    "two of a name": (
        "a.parquet", parquet(pa.table([["a"], ["b"]], names=["prompt", "prompt"])),
        "file", "two columns of the name"
    ),
    "two of a name in CSV": (
        "a.csv", b"prompt,answer,prompt\na,1,b\n", "file", "two columns of the name 'prompt'"
    ),
    "images": ("a.parquet", parquet(binary_parquet()), "file", "column 'image' holds bytes (images, audio)"),
    "no Parquet": ("a.parquet", b"PAR1" + b"x" * 100, "file", "is not a valid .parquet file"),
    "a cut file": ("a.parquet", parquet(ROWS)[:-30], "file", "is not a valid .parquet file"),
    "an empty file": ("a.parquet", b"", "file", "is not a valid .parquet file"),
    "an empty CSV": ("a.csv", b"", "file", "has no first line with the names"),
    "a header alone": ("a.csv", b"prompt,answer\n", "file", "has no row"),
    "Latin-1": ("a.csv", "prompt,answer\nx,1\ncafé,1\n".encode("latin-1"), "file", "row 2 is not UTF-8"),
    "UTF-16": ("a.csv", "prompt,answer\nx,1\n".encode("utf-16"), "file", "row 1 is not UTF-8"),
    "NUL": ("a.csv", b"prompt\0,answer\nx,1\n", "file", "holds NUL bytes"),
    "a short row": ("a.csv", b"prompt,answer\nx,1\ny\n", "file", "row 2 has 1 values, the first line has 2"),
    "an open quote": ("a.csv", b'prompt,answer\n"x,1\n', "file", "row 1 is not CSV (unexpected end of data)"),
    "a huge row": (
        "a.csv", b"prompt,answer\n" + b"x" * 500_000 + b",1\n", "file", "is longer than 400,000 bytes"
    ),
    "a huge row in Parquet": (
        "a.parquet", parquet([*ROWS, {"prompt": "x" * 9_000_000, "answer": "1"}]),
        "row 6", "is longer than 256,000"
    ),
    "unknown roles": (
        "a.parquet", parquet([{"prompt": [{"role": "human", "content": "x"}], "answer": "1"}] * 2),
        "row 1", "field 'prompt': message 1: role: expected one of system, user, assistant, tool",
    ),
    "many columns": ("a.csv", b",".join(b"%d" % n for n in range(2001)), "file", "more than 2,000 columns"),
    "long names": ("a.csv", b"x" * 20_001 + b",b\n", "file", "a first line of more than 20,000 characters"),
}  # fmt: skip


@pytest.mark.parametrize("defect", first_in_gate(8, BAD_TABLES))
def test_a_bad_table_is_refused_by_row_and_leaves_nothing(client, settings, defect):
    name, content, path, phrase = BAD_TABLES[defect]
    path_told, message = refusal_detail(upload(client, content, name))
    assert (path_told, phrase in message) == (path, True), message
    assert stored_files(settings) == []


def repeated_text_parquet(text: str, rows: int) -> bytes:
    """Return a small file in which one text is repeated in many rows."""
    repeated_text = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), [text])
    return parquet(pa.table({"prompt": repeated_text, "answer": pa.array(["1"] * rows)}))


def test_a_parquet_bomb_is_refused(client, settings):
    bomb = repeated_text_parquet("x" * 100_000, 1000)
    assert len(bomb) < 50_000
    assert refusal_detail(upload(client, bomb, "a.parquet"))[1].endswith(
        "unpacks to more than 250 times its size"
    )
    assert stored_files(settings) == []


@pytest.mark.parametrize(
    "answer",
    [
        {}, [], None, {"lines": "!", "next": None}, {"lines": "", "next": 0}, {"lines": "eA==", "next": -1},
        {"lines": "eA==", "next": "x"}, {"lines": "eA==", "next": None, "names": 3}, {"lines": 3},
    ],
)  # fmt: skip
def test_a_malformed_reply_ends_the_reading(client, settings, monkeypatch, answer):
    monkeypatch.setattr(Sandbox, "run_operation", lambda *_, **__: answer)
    assert "the sandbox sent an invalid answer" in refusal_detail(upload(client, as_csv(ROWS), "a.csv"))[1]
    assert stored_files(settings) == []
