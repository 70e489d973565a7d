"""Tests of tool settings that the form refuses, and of the unchanged hash of runs without tools."""

from typing import Any

import pytest

from backend.base.errors import InvalidConfig
from backend.config.merge import config_hash, resolve
from backend.config.run import RunConfig

TOOLS = {"type": "tool_use"}
PLAYED: dict[str, Any] = {
    "environment": {"type": "openenv", "server": "guess"},
    "problems": [{"name": "episodes", "instruction": "Guess."}],
    "rewards": [{"name": "environment"}],
}


def refused(**changes):
    with pytest.raises(InvalidConfig) as caught:
        resolve(changes)
    return {error.path: error.message for error in caught.value.errors}


def test_a_config_without_tools_has_the_hash_that_it_had_before_there_were_any():
    assert config_hash(resolve({})) == config_hash(resolve({"environment": {"type": "none"}}))
    assert config_hash(resolve({})) != config_hash(resolve({"environment": TOOLS}))
    stored = resolve({}).model_dump(mode="json")
    del stored["environment"]
    assert RunConfig.model_validate(stored) == resolve({})


def test_a_tool_that_is_not_installed_is_refused():
    [(path, message)] = refused(environment=TOOLS | {"tools": ["calculator", "wolfram"]}).items()
    assert path == "environment.tools.1"
    assert message == "must be 'calculator', 'lookup' or 'python', got \"wolfram\""


@pytest.mark.parametrize(
    ("changes", "path", "reason"),
    [
        ({"environment": TOOLS | {"tools": []}}, "environment.tools", "at least 1"),
        ({"environment": TOOLS | {"tools": ["lookup", "lookup"]}}, "environment.tools", "listed twice"),
        ({"environment": TOOLS | {"form": "template"}}, "environment.form", "chat_template is false"),
        (
            {"environment": TOOLS | {"form": "equation", "tools": ["python"]}},
            "environment.form",
            "expected calculator alone or lookup alone, got python",
        ),
        (
            {"environment": TOOLS | {"max_observation_tokens": 64}},
            "environment.max_observation_tokens",
            "expected at most 63",
        ),
        ({"environment": TOOLS | {"max_turns": 0}}, "environment.max_turns", "1"),
        (
            {"environment": TOOLS, "sampling": {"engine": {"type": "server"}}},
            "sampling.engine.type",
            "expected local",
        ),
        (
            {"environment": TOOLS, "sampling": {"engine": {"type": "colocated"}}},
            "sampling.engine.type",
            "is colocated",
        ),
        (
            {"environment": TOOLS, "sampling": {"keep_mask": True, "top_p": 0.9}},
            "sampling.keep_mask",
            "expected false",
        ),
        (
            {"environment": TOOLS, "sampling": {"routing_replay": True}},
            "sampling.routing_replay",
            "expected false",
        ),
        ({"environment": TOOLS, "recording": {"alternatives": 2}}, "recording.alternatives", "expected 0"),
        ({"environment": TOOLS, "resources": {"devices": 2}}, "environment.type", "expected none"),
    ],
)
def test_what_tools_contradict_is_refused_at_its_field(changes, path, reason):
    assert reason in refused(**changes)[path]


def test_a_run_in_an_environment_is_complete():
    config = resolve(PLAYED)
    assert config.environment.max_turns == 8
    assert config.rewards[0].success == 1


@pytest.mark.parametrize(
    ("changes", "path", "reason"),
    [
        ({"environment": {"type": "none"}}, "problems.0.name", "is episodes, but environment.type is none"),
        ({"environment": TOOLS}, "rewards.0.name", "is environment, but environment.type is tool_use"),
        ({"rewards": [{"name": "correctness"}]}, "rewards", "lack the term environment"),
        (
            {"environment": PLAYED["environment"] | {"server": "http://10.0.0.1"}},
            "environment.server",
            "should match pattern",
        ),
        (
            {"environment": PLAYED["environment"] | {"form": "template"}},
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
def test_what_an_environment_contradicts_is_refused_at_its_field(changes, path, reason):
    assert reason in refused(**PLAYED | changes)[path]
