"""Environments: what answers a policy while it writes a completion; nothing, tools, or an OpenEnv server."""

from typing import Annotated, Literal

from pydantic import Field

from backend.config.base import Frozen

ToolName = Literal["calculator", "lookup", "python"]


class NoEnvironment(Frozen):
    """No environment: the policy writes each completion in one turn."""

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
    writes on after 12*34= ; template: as the chat template has it, <tool_call> with JSON."""

    max_turns: Annotated[int, Field(ge=1, le=64)] = 4
    """Maximum number of answered calls per completion; later calls stay text."""

    max_observation_tokens: Annotated[int, Field(ge=1, le=32_768)] = 32
    """Longest answer of a tool, in tokens; a longer answer is cut."""

    lookup_field: Annotated[str, Field(min_length=1, max_length=128)] = "table"
    """Column of a row that lookup reads: an object of texts by key. Read only with that tool."""

    timeout_seconds: Annotated[float, Field(ge=0.1, le=60)] = 5.0
    """Processor time of a program of the tool python; the clock allows it three times as much."""

    memory_mb: Annotated[int, Field(ge=64, le=16_384)] = 512
    """Memory of a program of the tool python."""


class OpenEnv(Frozen):
    """An OpenEnv server plays with the policy: each turn of the policy is an action, which the server answers
    with an observation and a reward. The reward term `environment` is the reward of the episode.
    """

    type: Literal["openenv"] = "openenv"

    server: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]
    """Name of a server in the operator's setting OPENENV_URLS."""

    form: Literal["text", "template"] = "text"
    """How a turn becomes an action. text: the turn itself, after its thoughts, for servers whose action is
    one text; template: the JSON arguments of a <tool_call> of `act`, which the chat template shows."""

    reward: Literal["sum", "last"] = "sum"
    """Reward of an episode: the sum of the rewards of its steps, or the last of them."""

    max_turns: Annotated[int, Field(ge=1, le=256)] = 8
    """Maximum number of actions per episode; afterwards the episode ends with its reward so far."""

    max_observation_tokens: Annotated[int, Field(ge=1, le=32_768)] = 32
    """Longest observation, in tokens; a longer observation is cut."""

    observation_field: Annotated[str, Field(max_length=128)] = ""
    """Field of an observation that the policy reads; empty: its only field, or all of them as JSON."""

    sessions: Annotated[int, Field(ge=1, le=256)] = 16
    """Maximum number of episodes at a time; fewer if the server accepts fewer."""

    reset_seconds: Annotated[float, Field(ge=0.1, le=180)] = 60.0
    """Time limit for the answer to a reset, which is tried three times."""

    step_seconds: Annotated[float, Field(ge=0.1, le=300)] = 60.0
    """Time limit for the answer to an action, which is sent once."""

    wait_seconds: Annotated[float, Field(ge=0, le=540)] = 300.0
    """Longest wait for a place at a full server; afterwards the run fails."""


Environment = Annotated[NoEnvironment | ToolUse | OpenEnv, Field(discriminator="type")]
