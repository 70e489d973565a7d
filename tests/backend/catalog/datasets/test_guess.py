"""Tests of the guessed columns of an upload, its preview, and conversations that end with their answer."""

import json
import re

import pytest

from backend.catalog.datasets.guess import guess_mapping
from backend.config.columns import Columns, read_answer, read_prompt
from backend.config.problems import FileProblem
from backend.config.rows import check_row
from backend.service.cli import main
from tests.backend.catalog.datasets.test_datasets import BINARY_HEADERS, stored_files, upload
from worker.problems.file import load_file

CONVERSATION = [{"role": "user", "content": "1+1=?"}, {"role": "assistant", "content": "It is \\boxed{2}."}]
SHAREGPT_CONVERSATION = [
    {"from": "system", "value": "Add."},
    {"from": "human", "value": "1+1=?"},
    {"from": "gpt", "value": "2"},
]


def jsonl(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def preview(client, content, name="a.jsonl", **params):
    return client.post(
        "/api/v1/datasets/preview", params={"name": name, **params}, content=content, headers=BINARY_HEADERS
    )


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"prompt": "q", "answer": "a", "problem": "x", "solution": "y"}, ("prompt", "answer", "", "text")),
        ({"problem": "q", "solution": "so \\boxed{2}"}, ("problem", "solution", "", "boxed")),
        ({"problem": "q", "solution": "so \\boxed{2}", "answer": 2}, ("problem", "answer", "", "text")),
        ({"question": "q", "answer": "1+1=2\n#### 2"}, ("question", "answer", "####", "text")),
        ({"question": "q", "ground_truth": 2.5}, ("question", "ground_truth", "", "text")),
        ({"instruction": "q", "input": "", "output": "a"}, ("instruction", "output", "", "text")),
        ({"Question": "q", "Final_Answer": "a"}, ("Question", "Final_Answer", "", "text")),
        ({"messages": CONVERSATION}, ("messages", "messages", "", "boxed")),
        ({"messages": CONVERSATION[:1], "answer": "2"}, ("messages", "answer", "", "text")),
        ({"conversations": SHAREGPT_CONVERSATION}, ("conversations", "conversations", "", "text")),
        (
            {"prompt": CONVERSATION[:1], "reward_model": {"ground_truth": "2", "style": "rule"}},
            ("prompt", "reward_model.ground_truth", "", "text"),
        ),
    ],
)
def test_the_usual_columns_are_recognised(row, expected):
    assert tuple(guess_mapping([row, row], {}).model_dump().values()) == expected


@pytest.mark.parametrize(
    "row",
    [{}, {"a": "q", "b": "a"}, {"prompt": "q"}, {"prompt": 1, "answer": 2}, {"messages": [{"from": 1}]}],
)
def test_nothing_is_recognised_in_unusual_columns(row):
    assert guess_mapping([row], {}) is None


def test_a_conversation_ends_with_its_answer():
    columns = Columns("conversations", "conversations")
    row = {"conversations": SHAREGPT_CONVERSATION}
    check_row(row, columns)
    assert read_prompt(row, columns) == [
        {"role": "system", "content": "Add."},
        {"role": "user", "content": "1+1=?"},
    ]
    assert read_answer(row, columns) == "2"


@pytest.mark.parametrize(
    ("talk", "reason"),
    [
        ("text", "expected a list of messages that ends with one of the assistant"),
        ([], "expected a list of messages that ends with one of the assistant"),
        (SHAREGPT_CONVERSATION[:2], "expected a list of messages that ends with one of the assistant"),
        ([SHAREGPT_CONVERSATION[2]], "expected text or a list of messages, got []"),
        ([*SHAREGPT_CONVERSATION[:2], {"from": "gpt", "value": 7}], "content: expected text, got 7"),
        ([*SHAREGPT_CONVERSATION[:2], {"from": "gpt", "value": " "}], "expected text or a number"),
        (
            [{"from": ["human"], "value": "x"}, SHAREGPT_CONVERSATION[2]],
            "role: expected one of system, user, assistant, tool",
        ),
        ([{"from": "robot", "value": "x"}, SHAREGPT_CONVERSATION[2]], 'assistant, tool, got "robot"'),
    ],
)
def test_a_conversation_without_an_answer_is_refused(talk, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        check_row({"talk": talk}, Columns("talk", "talk"))


def test_a_preview_shows_the_first_three_rows_and_stores_nothing(client, settings):
    rows = [{"problem": f"q{n}", "solution": f"so \\boxed{{{n}}}", "split": "test"} for n in range(5)]
    first_preview = preview(client, jsonl(*rows)).json()
    assert first_preview["columns"] == ["problem", "solution", "split"]
    assert first_preview["mapping"] == {
        "prompt_field": "problem", "answer_field": "solution", "answer_after": "", "answer_form": "boxed"
    }  # fmt: skip
    assert first_preview["rows"] == [
        {"prompt": f"q{n}", "answer": str(n), "is_held_out": True, "error": ""} for n in range(3)
    ]
    second_preview = preview(
        client, first_preview["sample"].encode(), prompt_field="problem", answer_field="gone"
    ).json()
    assert second_preview["rows"][0]["error"].startswith("field 'gone' is missing")
    assert stored_files(settings) == []


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "has no row"),
        (b"nonsense", "has no row: its first line is not JSON"),
        (b"x" * 3_000_000, "has no row"),
        (b"[1]\n[2]\n", "expected a JSON object"),
    ],
)
def test_a_file_without_rows_has_no_preview(client, content, reason):
    response = preview(client, content)
    assert response.status_code == 422
    assert reason in response.json()["errors"][0]["message"]


def test_an_upload_without_column_names_is_checked_by_the_recognised_ones(client, settings):
    content = jsonl({"problem": "1+1", "answer": "2"}, {"problem": "1+2", "answer": "3"})
    upload_response = upload(client, content)
    assert upload_response.status_code == 201, upload_response.text
    assert upload_response.json()["mapping"]["prompt_field"] == "problem"
    assert client.get("/api/v1/datasets").json()["items"][0]["mapping"] == upload_response.json()["mapping"]
    mapped_upload = upload(client, content, prompt_field="answer", answer_field="problem").json()
    assert (mapped_upload["mapping"]["prompt_field"], mapped_upload["sha256"]) == (
        "answer",
        upload_response.json()["sha256"],
    )


def test_a_run_trains_on_conversations_as_they_were_previewed(client, settings):
    rows = [
        {
            "conversations": [
                *SHAREGPT_CONVERSATION[:1],
                {"from": "human", "value": f"{n}+1=?"},
                {"from": "gpt", "value": str(n + 1)},
            ]
        }
        for n in range(4)
    ]
    stored_dataset = upload(client, jsonl(*rows)).json()
    source = FileProblem(path=stored_dataset["path"], eval_fraction=0.25, **stored_dataset["mapping"])
    problem = load_file(source, settings.datasets_dir, seed=0, shuffled=False)
    prompt = problem.sample(0, "train")
    assert prompt.answer in {"1", "2", "3", "4"}
    assert prompt.text == f"system: Add.\n\nuser: {int(prompt.answer) - 1}+1=?"
    assert "conversations" not in prompt.columns


def test_the_command_stores_a_file_and_prints_the_problem(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DATASETS_DIR", str(tmp_path / "sets"))
    monkeypatch.setenv("STATE_DIR", str(tmp_path))
    file = tmp_path / "a.jsonl"
    file.write_bytes(jsonl({"problem": "1+1", "solution": "\\boxed{2}"}, {"problem": "2+1", "solution": "3"}))
    assert main(["upload", str(file), "--dry-run", "--answer-form", "boxed"]) == 0
    assert "'1+1' -> '2'" in capsys.readouterr().out
    assert not list((tmp_path / "sets" / "uploads").glob("*.jsonl"))
    assert main(["upload", str(file), "--answer-form", "boxed"]) == 0
    output = capsys.readouterr().out
    problem = json.loads(output.partition("problem: ")[2])
    assert FileProblem(**problem).answer_form == "boxed"
    assert main(["upload", str(file)]) == 0
    assert "already stored: 2 rows" in capsys.readouterr().out
