"""Problem sources and reward terms: their schema, and what can be refused before a run is queued."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from backend.config.problems import FileProblem, ProblemSource, problem_catalog
from backend.config.reasoning_gym_tasks import TASKS
from backend.config.rewards import RewardTerm, reward_catalog
from backend.config.sources import checked_file, source_errors

SOURCES: TypeAdapter[list[ProblemSource]] = TypeAdapter(list[ProblemSource])
TERMS: TypeAdapter[list[RewardTerm]] = TypeAdapter(list[RewardTerm])


def write_rows(path: Path, count: int = 20, **extra: Any) -> None:
    rows = [{"prompt": f"{number}+1=?", "answer": str(number + 1), **extra} for number in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def errors_of(
    problems: list[dict[str, Any]], tmp_path: Path, rewards: list[dict[str, Any]] | None = None
) -> list[tuple[str, str]]:
    found = source_errors(
        SOURCES.validate_python(problems),
        TERMS.validate_python(rewards or []),
        datasets_dir=tmp_path,
        hf_online=False,
    )
    return [(error.path, error.message) for error in found]


def test_the_table_of_tasks_is_that_of_the_installed_library():
    from dataclasses import fields

    from worker.problems.gym import library

    left_out = {"seed", "size", "data_file"}
    installed = {
        name: {field.name for field in fields(config)} - left_out
        for name, (_, config) in library().factory.DATASETS.items()
        if name != "composite"
    }
    assert {name: set(keys) for name, keys in TASKS.items()} == installed


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ({"name": "reasoning_gym", "task": "chain_sm"}, "there is no task 'chain_sm'; near it are chain_sum"),
        (
            {"name": "reasoning_gym", "task": "gcd", "task_config": {"max": 3}},
            "task_config.max: gcd takes min_numbers",
        ),
        ({"name": "reasoning_gym", "task": "gcd", "task_config": {"seed": 3}}, "task_config.seed: gcd takes"),
        ({"name": "sums", "operands": 1}, "greater than or equal to 2"),
        ({"name": "sums", "low": 9, "high": 3}, "must be above low = 9, got 3"),
        ({"name": "sums", "low": 1, "high": 3}, "leaves only 10 different sums, at least 200"),
        ({"name": "sums", "weight": 0}, "greater than 0"),
        ({"name": "sums", "weight": float("nan")}, "finite number"),
        ({"name": "sums", "operand": 3}, "Extra inputs are not permitted"),
        ({"name": "summs"}, "'sums', 'reasoning_gym', 'file', 'hub', 'plugin'"),
        ({"name": "hub", "dataset": "https://evil.example/x"}, "should match pattern"),
        ({"name": "hub", "dataset": "a/../b"}, "should match pattern"),
        ({"name": "hub", "dataset": "a..b/c"}, "a name on the hub is expected"),
        ({"name": "hub", "dataset": "a/b", "eval_split": "train"}, "must differ from split"),
        ({"name": "file"}, "Field required"),
    ],
)
def test_a_bad_source_is_refused_with_its_reason(source, reason):
    with pytest.raises(ValidationError) as caught:
        SOURCES.validate_python([source])
    assert reason in str(caught.value)


def test_an_unknown_reward_is_refused_with_the_known_ones():
    with pytest.raises(ValidationError, match="'correctness', 'think_format', 'boxed_format', 'plugin'"):
        TERMS.validate_python([{"name": "correctnes"}])


def test_the_catalogs_describe_every_kind_with_its_parameters():
    problems = {item["name"]: item["params"]["properties"] for item in problem_catalog()}
    assert list(problems) == ["sums", "reasoning_gym", "file", "hub", "plugin"]
    assert problems["reasoning_gym"]["task"]["enum"] == sorted(TASKS)
    assert all(item["note"] and item["title"] for item in [*problem_catalog(), *reward_catalog()])
    assert all(
        field["description"]
        for item in problem_catalog()
        for name, field in item["params"]["properties"].items()
        if name != "name"
    )


def test_a_good_file_has_no_errors(tmp_path):
    write_rows(tmp_path / "good.jsonl")
    assert errors_of([{"name": "sums"}, {"name": "file", "path": "good.jsonl"}], tmp_path) == []


def test_errors_name_the_source_the_line_and_the_field(tmp_path):
    (tmp_path / "bad.jsonl").write_text('{"prompt": "x", "answer": "1"}\n{"prompt": "y"}\n')
    [(path, message)] = errors_of([{"name": "sums"}, {"name": "file", "path": "bad.jsonl"}], tmp_path)
    assert path == "problems.1.path"
    assert message == "bad.jsonl: line 2: field 'answer' is missing; the fields are 'prompt'"


def test_a_missing_file_is_named_with_the_directory(tmp_path):
    [(path, message)] = errors_of([{"name": "file", "path": "none.jsonl"}], tmp_path)
    assert path == "problems.0.path"
    assert message == f'there is no file "none.jsonl" in DATASETS_DIR ({tmp_path})'


def test_a_hub_name_while_offline_says_what_to_set(tmp_path):
    [(path, message)] = errors_of([{"name": "hub", "dataset": "openai/gsm8k"}], tmp_path)
    assert path == "problems.0.dataset"
    assert (
        message
        == "'openai/gsm8k' is on the Hugging Face hub and HF_ONLINE is off: set HF_ONLINE=1, or use a file"
    )


def test_plugins_that_are_not_installed_are_named(tmp_path):
    found = errors_of(
        [{"name": "plugin", "entry_point": "mine"}], tmp_path, [{"name": "plugin", "entry_point": "brevity"}]
    )
    assert [path for path, _ in found] == ["problems.0.entry_point", "rewards.0.entry_point"]
    assert "there is no entry point 'mine' in the group grpolab.problems" in found[0][1]


def test_a_file_where_every_row_is_held_out_is_refused(tmp_path):
    write_rows(tmp_path / "eval.jsonl", split="test")
    [(_, message)] = errors_of([{"name": "file", "path": "eval.jsonl"}], tmp_path)
    assert message == "eval.jsonl: has no row left for training: all questions are held out"


def test_a_file_that_changed_since_launch_is_refused(tmp_path):
    write_rows(tmp_path / "data.jsonl")
    source = FileProblem(path="data.jsonl")
    pinned = source.with_(sha256=checked_file(source, tmp_path).sha256)
    assert checked_file(pinned, tmp_path)
    write_rows(tmp_path / "data.jsonl", count=21)
    with pytest.raises(ValueError, match="has changed since launch"):
        checked_file(pinned, tmp_path)
