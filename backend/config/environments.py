"""Environments: what answers a policy while it writes a completion; nothing, or tools that it may call."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from backend.config.base import Frozen

if TYPE_CHECKING:
    from backend.config.run import RunConfig

Problem = tuple[str, str]
"""Dotted path of a field and the reason it is refused."""

ToolName = Literal["calculator", "lookup", "python"]


class NoEnvironment(Frozen):
    """Nothing answers: a completion is the policy's alone, in one turn."""

    type: Literal["none"] = "none"


class ToolUse(Frozen):
    """Tools answer the policy's calls, turn after turn. Their answers are part of the completion and of its
    token budget; the policy is never trained to write them.
    """

    type: Literal["tool_use"] = "tool_use"

    tools: Annotated[tuple[ToolName, ...], Field(min_length=1, max_length=3)] = ("calculator",)
    """calculator: exact arithmetic; lookup: values by key from a column of the prompt's row; python: a
    program in the sandbox, without network or files."""

    form: Literal["plain", "equation", "template"] = "plain"
    """How a call is written. plain: [calculator: 12*34], and a fenced block for python; equation: the tool
    writes on behind 12*34= ; template: as the chat template has it, <tool_call> with JSON."""

    max_turns: Annotated[int, Field(ge=1, le=64)] = 4
    """Calls of one completion that are answered; later ones stay text."""

    max_observation_tokens: Annotated[int, Field(ge=1, le=32_768)] = 32
    """Longest answer of a tool, in tokens; the rest of it is cut off."""

    lookup_field: Annotated[str, Field(min_length=1, max_length=128)] = "table"
    """Column of a row that lookup reads: an object of texts by key. Read only with that tool."""

    timeout_seconds: Annotated[float, Field(ge=0.1, le=60)] = 5.0
    """Processor time of a program of the tool python; the clock allows it three times as much."""

    memory_mb: Annotated[int, Field(ge=64, le=16_384)] = 512
    """Memory of a program of the tool python."""


Environment = Annotated[NoEnvironment | ToolUse, Field(discriminator="type")]


def environment_errors(config: "RunConfig") -> Iterator[Problem]:
    """Everything that tools contradict, or that turns cannot give."""
    environment = config.environment
    if isinstance(environment, NoEnvironment):
        return
    yield from _form_errors(environment, has_template=config.policy.chat_template)
    yield from _turn_errors(config)
    most = config.sampling.max_new_tokens
    if environment.max_observation_tokens >= most:
        reason = f"is {environment.max_observation_tokens}, but sampling.max_new_tokens = {most} holds"
        yield (
            "environment.max_observation_tokens",
            f"{reason} the answers of tools and all that the policy writes: at most {most - 1} is expected",
        )


def _form_errors(environment: ToolUse, *, has_template: bool) -> Iterator[Problem]:
    tools = environment.tools
    if repeated := sorted({name for name in tools if tools.count(name) > 1}):
        yield "environment.tools", f"{repeated[0]!r} is listed twice"
    elif environment.form == "equation" and (len(tools) > 1 or "python" in tools):
        reason = "is equation, which names no tool: calculator alone or lookup alone is expected"
        yield "environment.form", f"{reason}, got {', '.join(tools)}"
    if environment.form == "template" and not has_template:
        reason = "is template, but policy.chat_template is false: plain is expected, or a chat template"
        yield "environment.form", reason


def _turn_errors(config: "RunConfig") -> Iterator[Problem]:
    """Features of the sampler that turns do not give."""
    turns = "but with environment.type = tool_use a completion is sampled in turns"
    if config.sampling.engine.type != "local":
        reason = f"is {config.sampling.engine.type}, {turns}, by the trainer itself"
        yield "sampling.engine.type", f"{reason}: local is expected"
    for name in ("keep_mask", "routing_replay"):
        if getattr(config.sampling, name):
            yield f"sampling.{name}", f"is on, {turns}, which keep no such record: false is expected"
    if config.recording.alternatives:
        reason = f"is {config.recording.alternatives}, {turns}, which keep no alternatives"
        yield "recording.alternatives", f"{reason}: 0 is expected"
    if config.evaluation.effort:
        reason = f"is on, {turns}, which cannot be cut off at a length"
        yield "evaluation.effort", f"{reason}: false is expected"
