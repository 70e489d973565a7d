"""The guess about the columns of an upload, its preview, and conversations that end with their answer."""

import gzip
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.catalog.datasets.guess import MAX_COLUMNS, Mapped, columns_of, guessed
from backend.catalog.datasets.preview import DatasetPreview, parsed, preview_of
from backend.config.columns import Columns, answer_of, prompt_of
from backend.config.problems import FileProblem
from backend.config.rows import check_row
from backend.service.cli import main
from tests.backend.catalog.datasets.test_datasets import RAW, put, stored_files
from worker.problems.file import load_file

TALK = [{"role": "user", "content": "1+1=?"}, {"role": "assistant", "content": "It is \\boxed{2}."}]
SHAREGPT = [
    {"from": "system", "value": "Add."},
    {"from": "human", "value": "1+1=?"},
    {"from": "gpt", "value": "2"},
]


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def ask(client, content, name="a.jsonl", **params):
    return client.post(
        "/api/v1/datasets/preview", params={"name": name, **params}, content=content, headers=RAW
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
        ({"messages": TALK}, ("messages", "messages", "", "boxed")),
        ({"messages": TALK[:1], "answer": "2"}, ("messages", "answer", "", "text")),
        ({"conversations": SHAREGPT}, ("conversations", "conversations", "", "text")),
        (
            {"prompt": TALK[:1], "reward_model": {"ground_truth": "2", "style": "rule"}},
            ("prompt", "reward_model.ground_truth", "", "text"),
        ),
    ],
)
def test_the_usual_columns_are_recognised(row, expected):
    assert tuple(guessed([row, row], {}).model_dump().values()) == expected


@pytest.mark.parametrize(
    "row",
    [{}, {"a": "q", "b": "a"}, {"prompt": "q"}, {"prompt": 1, "answer": 2}, {"messages": [{"from": 1}]}],
)
def test_nothing_is_recognised_where_there_is_nothing(row):
    assert guessed([row], {}) is None


def test_a_column_of_mixed_types_gives_way_to_one_that_is_whole():
    rows = [{"prompt": n or None, "question": "q", "answer": "a"} for n in range(4)]
    assert guessed(rows, {}).prompt_field == "question"
    assert guessed([{"prompt": "q", "answer": "a"}, {"prompt": 3, "answer": "a"}], {}) == Mapped()


def test_names_that_no_problem_can_hold_are_not_offered():
    row = {"x" * 129: 1, "": 1, "\u202e<img>": 1, "a": {"b": 1, "c": {"d": 1}}}
    assert columns_of([row]) == ["\u202e<img>", "a", "a.b", "a.c"]
    assert len(columns_of([{f"c{n}": 1 for n in range(5_000)}])) == MAX_COLUMNS


def test_a_conversation_ends_with_its_answer():
    columns = Columns("conversations", "conversations")
    row = {"conversations": SHAREGPT}
    check_row(row, columns)
    assert prompt_of(row, columns) == [
        {"role": "system", "content": "Add."},
        {"role": "user", "content": "1+1=?"},
    ]
    assert answer_of(row, columns) == "2"


@pytest.mark.parametrize(
    ("talk", "reason"),
    [
        ("text", "expected a list of messages that ends with one of the assistant"),
        ([], "expected a list of messages that ends with one of the assistant"),
        (SHAREGPT[:2], "expected a list of messages that ends with one of the assistant"),
        ([SHAREGPT[2]], "expected text or a list of messages, got []"),
        ([*SHAREGPT[:2], {"from": "gpt", "value": 7}], "content: expected text, got 7"),
        ([*SHAREGPT[:2], {"from": "gpt", "value": " "}], "expected text or a number"),
        (
            [{"from": ["human"], "value": "x"}, SHAREGPT[2]],
            "role: expected one of system, user, assistant, tool",
        ),
        ([{"from": "robot", "value": "x"}, SHAREGPT[2]], 'assistant, tool, got "robot"'),
    ],
)
def test_what_is_no_conversation_with_an_answer_is_refused(talk, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        check_row({"talk": talk}, Columns("talk", "talk"))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["from", "value", "role", "content", "prompt", "answer", "a.b", ""]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(
    st.lists(
        st.dictionaries(st.sampled_from(["prompt", "messages", "answer", "x.y", ""]), VALUES), max_size=4
    )
)
def test_any_rows_are_previewed_without_an_accident(rows):
    mapping = guessed(rows, {})
    for asked_mapping in (
        {},
        {"prompt_field": "messages"},
        {"prompt_field": "messages", "answer_field": "messages"},
    ):
        if rows:
            DatasetPreview.model_validate(preview_of(lines(*rows).split(b"\n")[:-1], asked_mapping))
    if mapping is not None:
        assert {mapping.prompt_field, mapping.answer_field} <= set(columns_of(rows))


def test_a_preview_shows_three_rows_as_they_will_be_used_and_keeps_nothing(client, settings):
    rows = [{"problem": f"q{n}", "solution": f"so \\boxed{{{n}}}", "split": "test"} for n in range(5)]
    shown = ask(client, lines(*rows)).json()
    assert shown["columns"] == ["problem", "solution", "split"]
    assert shown["mapping"] == {
        "prompt_field": "problem", "answer_field": "solution", "answer_after": "", "answer_form": "boxed"
    }  # fmt: skip
    assert shown["rows"] == [
        {"prompt": f"q{n}", "answer": str(n), "is_held_out": True, "error": ""} for n in range(3)
    ]
    again = ask(client, shown["sample"].encode(), prompt_field="problem", answer_field="gone").json()
    assert again["rows"][0]["error"].startswith("field 'gone' is missing")
    assert stored_files(settings) == []


def test_the_beginning_of_a_file_is_enough(client):
    content = lines(*({"question": f"{n} " + "x" * 500, "answer": str(n)} for n in range(100)))
    for name, body in (("a.jsonl", content[:1900]), ("a.jsonl.gz", gzip.compress(content)[:-20])):
        shown = ask(client, body, name, cut="true")
        assert shown.status_code == 200, shown.text
        assert shown.json()["mapping"]["prompt_field"] == "question"
        assert len(shown.json()["rows"]) == 3


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
    answer = ask(client, content)
    assert answer.status_code == 422
    assert reason in answer.json()["errors"][0]["message"]


def test_an_upload_without_columns_is_checked_by_those_that_are_recognised(client, settings):
    content = lines({"problem": "1+1", "answer": "2"}, {"problem": "1+2", "answer": "3"})
    stored = put(client, content)
    assert stored.status_code == 201, stored.text
    assert stored.json()["mapping"]["prompt_field"] == "problem"
    assert client.get("/api/v1/datasets").json()["items"][0]["mapping"] == stored.json()["mapping"]
    named = put(client, content, prompt_field="answer", answer_field="problem").json()
    assert (named["mapping"]["prompt_field"], named["sha256"]) == ("answer", stored.json()["sha256"])


def test_a_run_trains_on_conversations_as_they_were_previewed(client, settings):
    rows = [
        {
            "conversations": [
                *SHAREGPT[:1],
                {"from": "human", "value": f"{n}+1=?"},
                {"from": "gpt", "value": str(n + 1)},
            ]
        }
        for n in range(4)
    ]
    stored = put(client, lines(*rows)).json()
    source = FileProblem(path=stored["path"], eval_fraction=0.25, **stored["mapping"])
    problem = load_file(source, settings.datasets_dir, seed=0, shuffled=False)
    prompt = problem.sample(0, "train")
    assert prompt.answer in {"1", "2", "3", "4"}
    assert prompt.text == f"system: Add.\n\nuser: {int(prompt.answer) - 1}+1=?"
    assert "conversations" not in prompt.columns


def test_rows_of_an_upload_are_compared_with_one_another_and_with_held_out_ones(client):
    question = " ".join(f"word{chr(97 + n)}" for n in range(20))
    rows = [question, "x y z", question.replace("worda", "other"), " X  y z", "p q r"]
    content = lines(
        *({"question": text, "answer": "1", "split": "train"} for text in rows),
        {"question": f"{question} too", "answer": "1", "split": "test"},
    )
    sha256 = put(client, content).json()["sha256"]
    answer = client.post(f"/api/v1/datasets/{sha256}/repeats")
    assert answer.status_code == 200, answer.text
    counts = {key: value for key, value in answer.json().items() if key != "twins"}
    assert counts == {"rows": 5, "duplicates": 1, "near": 3, "contaminated": 2}
    assert [(twin["line"], twin["other"]) for twin in answer.json()["twins"]] == [(1, 6), (3, 6), (4, 2)]
    assert client.post(f"/api/v1/datasets/{'0' * 64}/repeats").status_code == 404
    assert client.post("/api/v1/datasets/..%2f..%2fetc/repeats").status_code == 404


def test_lines_that_are_no_rows_are_left_out_of_the_guess():
    assert parsed([b"nonsense", b'{"a": 1}', b"\xff"]) == [{"a": 1}]


def test_what_is_named_counts_and_the_rest_is_recognised():
    row = {"problem": "q", "solution": "so \\boxed{2}", "answer": "2", "odd": "x ## 3"}
    assert guessed([row], {"answer_field": "solution"}).model_dump() == {
        "prompt_field": "problem", "answer_field": "solution", "answer_after": "", "answer_form": "boxed"
    }  # fmt: skip
    assert guessed([row], {"answer_field": "odd", "answer_after": "##"}).prompt_field == "problem"
    assert guessed([row], {"prompt_field": "gone"}) == Mapped(prompt_field="gone")


def test_the_command_keeps_a_file_and_prints_the_problem(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DATASETS_DIR", str(tmp_path / "sets"))
    monkeypatch.setenv("STATE_DIR", str(tmp_path))
    file = tmp_path / "a.jsonl"
    file.write_bytes(lines({"problem": "1+1", "solution": "\\boxed{2}"}, {"problem": "2+1", "solution": "3"}))
    assert main(["upload", str(file), "--dry-run", "--answer-form", "boxed"]) == 0
    assert "'1+1' -> '2'" in capsys.readouterr().out
    assert not list((tmp_path / "sets" / "uploads").glob("*.jsonl"))
    assert main(["upload", str(file), "--answer-form", "boxed"]) == 0
    told = capsys.readouterr().out
    problem = json.loads(told.partition("problem: ")[2])
    assert FileProblem(**problem).answer_form == "boxed"
    assert main(["upload", str(file)]) == 0
    assert "was there already: 2 rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["a.zip"], "name: must end with .jsonl"),
        (["gone.jsonl"], "No such file or directory"),
        (["a.jsonl", "--answer-form", "loud"], "answer_form: Input should be 'text' or 'boxed'"),
        (["a.jsonl", "--prompt-field", "x" * 200], "prompt_field: String should have at most 128 characters"),
        (["a.jsonl", "--prompt-field", "gone"], "line 1: field 'gone' is missing; the fields are 'prompt'"),
    ],
)
def test_the_command_says_what_is_wrong_in_a_sentence(tmp_path, monkeypatch, capsys, arguments, reason):
    monkeypatch.setenv("DATASETS_DIR", str(tmp_path / "sets"))
    (tmp_path / "a.jsonl").write_bytes(
        lines({"prompt": "1+1", "answer": "2"}, {"prompt": "2+1", "answer": "3"})
    )
    monkeypatch.chdir(tmp_path)
    assert main(["upload", *arguments]) == 1
    assert reason in capsys.readouterr().err
    assert not list((tmp_path / "sets").rglob("*.jsonl"))
