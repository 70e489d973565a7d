"""Tests of the schema of problem sources and reward terms, and of errors that are found before queueing."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from backend.base.settings import Settings
from backend.config.evaluation import EvaluationConfig
from backend.config.problems import FileProblem, ProblemSource, problem_catalog
from backend.config.reasoning_gym_checks import parameter_errors
from backend.config.reasoning_gym_tasks import _TABLE, TASKS
from backend.config.rewards import RewardTerm
from backend.config.run import RunConfig
from backend.config.sources import checked_file, source_errors
from tests import reasoning_gym_table

SOURCES_ADAPTER: TypeAdapter[list[ProblemSource]] = TypeAdapter(list[ProblemSource])
TERMS_ADAPTER: TypeAdapter[list[RewardTerm]] = TypeAdapter(list[RewardTerm])


def write_rows(path: Path, count: int = 20, **extra: Any) -> None:
    rows = [{"prompt": f"{number}+1=?", "answer": str(number + 1), **extra} for number in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def find_errors(
    problems: list[dict[str, Any]],
    tmp_path: Path,
    rewards: list[dict[str, Any]] | None = None,
    settings: Settings | None = None,
) -> list[tuple[str, str]]:
    config = RunConfig.model_construct(
        problems=tuple(SOURCES_ADAPTER.validate_python(problems)),
        rewards=tuple(TERMS_ADAPTER.validate_python(rewards or [])),
        evaluation=EvaluationConfig(),
    )
    errors = source_errors(
        config,
        datasets_dir=tmp_path,
        hf_online=False,
        unserved_reasons=(settings or Settings()).unserved_rewards,
    )
    return [(error.path, error.message) for error in errors]


def test_the_table_of_tasks_matches_the_installed_library():
    assert _TABLE.strip() == reasoning_gym_table.table()


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_every_parameter_that_the_library_accepts_is_accepted():
    refused_count = 0
    for name, config in reasoning_gym_table.config_classes().items():
        for key, parameter in TASKS[name].parameters.items():
            if parameter.type in ("int", "number"):
                for number in (-(10**6), -1, 0, 1, 2, 1000, 10**6):
                    errors = parameter_errors(name, TASKS[name], {key: number})
                    accepts = library_accepts(config, {key: number})
                    assert not (errors and accepts), (name, key, number, errors)
                    refused_count += bool(errors)
    assert refused_count > 500


def library_accepts(config: Any, values: dict[str, Any]) -> bool:
    try:
        task_config = config(**values)
        if hasattr(task_config, "validate"):
            task_config.validate()
    except (AssertionError, ValueError):
        return False
    return True


def test_the_defaults_of_every_task_are_accepted():
    for name, task in TASKS.items():
        defaults = {
            key: parameter.default
            for key, parameter in task.parameters.items()
            if parameter.default is not None
        }
        assert parameter_errors(name, task, defaults) == []


@pytest.mark.parametrize(
    ("task", "config", "errors"),
    [
        (
            "chain_sum",
            {"min_terms": "abc"},
            ['min_terms: expected a whole number (default 2), got "abc"'],
        ),
        ("chain_sum", {"min_terms": 2.5}, ["min_terms: expected a whole number (default 2), got 2.5"]),
        (
            "chain_sum",
            {"min_terms": True},
            ["min_terms: expected a whole number (default 2), got true"],
        ),
        ("chain_sum", {"min_terms": 0}, ["min_terms: chain_sum expects min_terms > 0, got 0"]),
        (
            "chain_sum",
            {"min_terms": 9},
            ["min_terms: chain_sum expects min_terms <= max_terms, got 9 and max_terms = 6"],
        ),
        (
            "chain_sum",
            {"min_terms": 9, "max_terms": 2},
            ["max_terms: chain_sum expects max_terms >= min_terms, got 2 and min_terms = 9"],
        ),
        ("chain_sum", {"min_terms": 9, "max_terms": 12}, []),
        ("countdown", {"operators": "+"}, ['operators: expected a list of texts, got "+"']),
        ("codeio", {"difficulty": None}, []),
        ("codeio", {"difficulty": "x"}, ['difficulty: expected a whole number or null, got "x"']),
        (
            "basic_arithmetic",
            {"format_style": "ornate"},
            ['format_style: expected one of simple, natural, got "ornate"'],
        ),
        ("gcd", {"max_value": 2**60}, [f"max_value: expected a whole number (default 1000), got {2**60}"]),
        ("list_functions", {"n": 1}, ["n: list_functions takes no parameter"]),
    ],
)
def test_a_task_parameter_is_refused_with_the_expectation(task, config, errors):
    found_errors = parameter_errors(task, TASKS[task], config)
    assert [f"{key}: {reason}" for key, reason in found_errors] == errors


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (
            {"name": "reasoning_gym", "task": "chain_sm"},
            "there is no task 'chain_sm'; did you mean chain_sum",
        ),
        (
            {"name": "reasoning_gym", "task": "gcd", "task_config": {"max": 3}},
            "task_config.max: gcd takes min_numbers",
        ),
        ({"name": "reasoning_gym", "task": "gcd", "task_config": {"seed": 3}}, "task_config.seed: gcd takes"),
        ({"name": "sums", "operands": 1}, "greater than or equal to 2"),
        ({"name": "sums", "low": 9, "high": 3}, "must be above low = 9, got 3"),
        ({"name": "sums", "low": 1, "high": 3}, "leaves only 10 different sums, expected at least 200"),
        ({"name": "sums", "weight": 0}, "greater than or equal to"),
        ({"name": "sums", "weight": float("nan")}, "finite number"),
        ({"name": "sums", "operand": 3}, "Extra inputs are not permitted"),
        ({"name": "summs"}, "'sums', 'reasoning_gym', 'file', 'hub', 'episodes', 'plugin'"),
        ({"name": "hub", "dataset": "https://evil.example/x"}, "should match pattern"),
        ({"name": "hub", "dataset": "a/../b"}, "should match pattern"),
        ({"name": "hub", "dataset": "a..b/c"}, "expected a name on the hub"),
        ({"name": "hub", "dataset": "a/b", "eval_split": "train"}, "must differ from split"),
        ({"name": "file"}, "Field required"),
    ],
)
def test_a_bad_source_is_refused_with_its_reason(source, reason):
    with pytest.raises(ValidationError) as error_info:
        SOURCES_ADAPTER.validate_python([source])
    assert reason in str(error_info.value)


def test_a_reward_whose_server_is_not_configured_is_refused_by_name(tmp_path):
    rewards = [{"name": "correctness"}, {"name": "judge"}, {"name": "reward_model"}]
    unset_reason = "needs a server that is not configured: the operator must set"
    assert find_errors([], tmp_path, rewards) == [
        ("rewards.1.name", f"the reward judge {unset_reason} JUDGE_URL"),
        ("rewards.2.name", f"the reward reward_model {unset_reason} REWARD_MODEL_URL"),
    ]
    settings_with_judge = Settings(judge_url="http://h/v1", judge_model="m")
    assert [path for path, _ in find_errors([], tmp_path, rewards, settings_with_judge)] == ["rewards.2.name"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"lowest": 10, "highest": 1}, "highest must be above lowest"),
        ({"template": "Grade it."}, "the template must contain {completion}"),
        ({"per": "step", "answer": "last_number"}, "per: step needs answer: json"),
        ({"criterion": "a/b"}, "should match pattern"),
        ({"api_key": "x"}, "Extra inputs are not permitted"),
    ],
)
def test_a_judge_that_cannot_grade_is_refused_with_its_reason(fields, reason):
    with pytest.raises(ValidationError) as error_info:
        TERMS_ADAPTER.validate_python([{"name": "judge", **fields}])
    assert reason in str(error_info.value)


def test_the_catalogs_describe_every_kind_with_its_parameters():
    problems = {item["name"]: item["params"]["properties"] for item in problem_catalog()}
    assert list(problems) == ["sums", "reasoning_gym", "file", "hub", "episodes", "plugin"]
    assert problems["reasoning_gym"]["task"]["enum"] == sorted(TASKS)
    assert all(item["note"] and item["title"] for item in problem_catalog())
    assert all(
        field["description"]
        for item in problem_catalog()
        for name, field in item["params"]["properties"].items()
        if name != "name"
    )


def test_a_missing_file_is_named_with_the_directory(tmp_path):
    [(path, message)] = find_errors([{"name": "file", "path": "none.jsonl"}], tmp_path)
    assert path == "problems.0.path"
    assert message == f'there is no file "none.jsonl" in DATASETS_DIR ({tmp_path})'


def test_a_hub_name_while_offline_is_refused_with_the_setting_to_change(tmp_path):
    [(path, message)] = find_errors([{"name": "hub", "dataset": "openai/gsm8k"}], tmp_path)
    assert path == "problems.0.dataset"
    assert (
        message
        == "'openai/gsm8k' is on the Hugging Face hub and HF_ONLINE is off: set HF_ONLINE=1, or use a file"
    )


def test_a_file_where_every_row_is_held_out_is_refused(tmp_path):
    write_rows(tmp_path / "eval.jsonl", split="test")
    [(_, message)] = find_errors([{"name": "file", "path": "eval.jsonl"}], tmp_path)
    assert message == "eval.jsonl: has no row left for training: all questions are held out"


def test_a_file_that_changed_since_launch_is_refused(tmp_path):
    write_rows(tmp_path / "data.jsonl")
    source = FileProblem(path="data.jsonl")
    pinned_source = source.with_(sha256=checked_file(source, tmp_path).sha256)
    assert checked_file(pinned_source, tmp_path)
    write_rows(tmp_path / "data.jsonl", count=21)
    with pytest.raises(ValueError, match="has changed since launch"):
        checked_file(pinned_source, tmp_path)
