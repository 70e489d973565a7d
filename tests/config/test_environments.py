"""Tests of tool settings that the form refuses, and of the unchanged hash of runs without tools."""

from typing import Any

import pytest

from backend.base.errors import InvalidConfig
from backend.config.merge import config_hash, resolve
from backend.config.run import RunConfig

TOOLS_CONFIG = {"type": "tool_use"}
ENVIRONMENT_CONFIG: dict[str, Any] = {
    "environment": {"type": "openenv", "server": "guess"},
    "problems": [{"name": "episodes", "instruction": "Guess."}],
    "rewards": [{"name": "environment"}],
}


def find_errors(**changes):
    with pytest.raises(InvalidConfig) as error_info:
        resolve(changes)
    return {error.path: error.message for error in error_info.value.errors}


def test_a_config_without_tools_keeps_its_earlier_hash():
    assert config_hash(resolve({})) == config_hash(resolve({"environment": {"type": "none"}}))
    assert config_hash(resolve({})) != config_hash(resolve({"environment": TOOLS_CONFIG}))
    stored_config = resolve({}).model_dump(mode="json")
    del stored_config["environment"]
    assert RunConfig.model_validate(stored_config) == resolve({})


def test_a_tool_that_is_not_installed_is_refused():
    [(path, message)] = find_errors(environment=TOOLS_CONFIG | {"tools": ["calculator", "wolfram"]}).items()
    assert path == "environment.tools.1"
    assert message == "must be 'calculator', 'lookup' or 'python', got \"wolfram\""


@pytest.mark.parametrize(
    ("changes", "path", "reason"),
    [
        ({"environment": TOOLS_CONFIG | {"tools": []}}, "environment.tools", "at least 1"),
        (
            {"environment": TOOLS_CONFIG | {"tools": ["lookup", "lookup"]}},
            "environment.tools",
            "listed twice",
        ),
        ({"environment": TOOLS_CONFIG | {"form": "template"}}, "environment.form", "chat_template is false"),
        (
            {"environment": TOOLS_CONFIG | {"form": "equation", "tools": ["python"]}},
            "environment.form",
            "expected calculator alone or lookup alone, got python",
        ),
        (
            {"environment": TOOLS_CONFIG | {"max_observation_tokens": 64}},
            "environment.max_observation_tokens",
            "expected at most 63",
        ),
        ({"environment": TOOLS_CONFIG | {"max_turns": 0}}, "environment.max_turns", "1"),
        (
            {"environment": TOOLS_CONFIG, "sampling": {"engine": {"type": "server"}}},
            "sampling.engine.type",
            "expected local",
        ),
        (
            {"environment": TOOLS_CONFIG, "sampling": {"engine": {"type": "colocated"}}},
            "sampling.engine.type",
            "is colocated",
        ),
        (
            {"environment": TOOLS_CONFIG, "sampling": {"keep_mask": True, "top_p": 0.9}},
            "sampling.keep_mask",
            "expected false",
        ),
        (
            {"environment": TOOLS_CONFIG, "sampling": {"routing_replay": True}},
            "sampling.routing_replay",
            "expected false",
        ),
        (
            {"environment": TOOLS_CONFIG, "recording": {"alternatives": 2}},
            "recording.alternatives",
            "expected 0",
        ),
        ({"environment": TOOLS_CONFIG, "resources": {"devices": 2}}, "environment.type", "expected none"),
    ],
)
def test_a_contradiction_to_tools_is_refused_at_its_field(changes, path, reason):
    assert reason in find_errors(**changes)[path]


def test_a_run_in_an_environment_has_a_complete_config():
    config = resolve(ENVIRONMENT_CONFIG)
    assert config.environment.max_turns == 8
    assert config.rewards[0].success == 1


@pytest.mark.parametrize(
    ("changes", "path", "reason"),
    [
        ({"environment": {"type": "none"}}, "problems.0.name", "is episodes, but environment.type is none"),
        ({"environment": TOOLS_CONFIG}, "rewards.0.name", "is environment, but environment.type is tool_use"),
        ({"rewards": [{"name": "correctness"}]}, "rewards", "lack the term environment"),
        (
            {"environment": ENVIRONMENT_CONFIG["environment"] | {"server": "http://10.0.0.1"}},
            "environment.server",
            "should match pattern",
        ),
        (
            {"environment": ENVIRONMENT_CONFIG["environment"] | {"form": "template"}},
            "environment.form",
            "policy.chat_template is false",
        ),
        (
            {"sampling": {"engine": {"type": "server"}}},
            "sampling.engine.type",
            "environment.type = openenv",
        ),
    ],
)
def test_a_contradiction_to_an_environment_is_refused_at_its_field(changes, path, reason):
    assert reason in find_errors(**ENVIRONMENT_CONFIG | changes)[path]
