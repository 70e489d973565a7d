"""Refuse settings that contradict the environment."""

from collections.abc import Iterator

from backend.config.base import Problem
from backend.config.environments import NoEnvironment, OpenEnv, ToolUse
from backend.config.problems import EpisodesProblem
from backend.config.rewards import EnvironmentReward
from backend.config.sections import RunSections


def environment_errors(config: RunSections) -> Iterator[Problem]:
    """Yield settings that contradict the environment of a run."""
    environment = config.environment
    yield from _episode_errors(config)
    if isinstance(environment, NoEnvironment):
        return
    if environment.form == "template" and not config.policy.chat_template:
        reason = "is template, but policy.chat_template is false: choose another form, or a chat template"
        yield "environment.form", reason
    if isinstance(environment, ToolUse):
        yield from _form_errors(environment)
    yield from _turn_errors(config)
    limit = config.sampling.max_new_tokens
    if environment.max_observation_tokens >= limit:
        reason = f"is {environment.max_observation_tokens}, but sampling.max_new_tokens = {limit} holds"
        yield (
            "environment.max_observation_tokens",
            f"{reason} the answers of tools and all that the policy writes: expected at most {limit - 1}",
        )


def _form_errors(environment: ToolUse) -> Iterator[Problem]:
    tools = environment.tools
    if repeated_tools := sorted({name for name in tools if tools.count(name) > 1}):
        yield "environment.tools", f"{repeated_tools[0]!r} is listed twice"
    elif environment.form == "equation" and (len(tools) > 1 or "python" in tools):
        reason = "is equation, which names no tool: expected calculator alone or lookup alone"
        yield "environment.form", f"{reason}, got {', '.join(tools)}"


def _episode_errors(config: RunSections) -> Iterator[Problem]:
    """Yield problems and rewards that require OpenEnv without it, and OpenEnv without its reward term."""
    is_openenv = isinstance(config.environment, OpenEnv)
    expected = f"but environment.type is {config.environment.type}: expected openenv"
    for path, source in config.sources:
        if isinstance(source, EpisodesProblem) and not is_openenv:
            yield f"{path}.name", f"is episodes, {expected}"
    rewards = [number for number, term in enumerate(config.rewards) if isinstance(term, EnvironmentReward)]
    for number in () if is_openenv else rewards:
        yield f"rewards.{number}.name", f"is environment, {expected}"
    if is_openenv and not rewards:
        yield "rewards", "lack the term environment, which is the reward of environment.type = openenv"


def _turn_errors(config: RunSections) -> Iterator[Problem]:
    """Yield sampler features that are not available if completions are sampled in turns."""
    turns = f"but with environment.type = {config.environment.type} a completion is sampled in turns"
    if config.sampling.engine.type != "local":
        reason = f"is {config.sampling.engine.type}, {turns}, by the trainer itself"
        yield "sampling.engine.type", f"{reason}: expected local"
    for name in ("keep_mask", "routing_replay"):
        if getattr(config.sampling, name):
            yield f"sampling.{name}", f"is on, {turns}, which keep no such record: expected false"
    if config.recording.alternatives:
        reason = f"is {config.recording.alternatives}, {turns}, which keep no alternatives"
        yield "recording.alternatives", f"{reason}: expected 0"
    if config.evaluation.effort:
        reason = f"is on, {turns}, which cannot be cut off at a length"
        yield "evaluation.effort", f"{reason}: expected false"
