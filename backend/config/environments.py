"""Config of the environment that responds to the policy during a completion: none, tools, or OpenEnv."""

from typing import Annotated, Literal

from pydantic import Field

from backend.config.base import Frozen

ToolName = Literal["calculator", "lookup", "python"]


class NoEnvironment(Frozen):
    """No environment. The policy writes each completion in one turn."""

    type: Literal["none"] = "none"


class ToolUse(Frozen):
    """Tools that answer the calls of the policy, turn by turn. Their answers are part of the completion and
    count towards its length, but the policy is not trained on them.
    """

    type: Literal["tool_use"] = "tool_use"

    tools: Annotated[tuple[ToolName, ...], Field(min_length=1, max_length=3)] = ("calculator",)
    """Available tools: calculator for exact arithmetic, lookup for values by key from a column of the
    prompt's row, and python for programs in the sandbox, without network or files.
    """

    form: Literal["plain", "equation", "template"] = "plain"
    """Format of a call. plain is [calculator: 12*34], or a fenced block for python. With equation, the tool
    continues after 12*34= . template is the format of the chat template, <tool_call> with JSON."""

    max_turns: Annotated[int, Field(ge=1, le=64)] = 4
    """Maximum number of answered calls per completion. Later calls are not answered."""

    max_observation_tokens: Annotated[int, Field(ge=1, le=32_768)] = 32
    """Maximum length of a tool's answer, in tokens. A longer answer is truncated."""

    lookup_field: Annotated[str, Field(min_length=1, max_length=128)] = "table"
    """Column with an object of texts by key, for the tool lookup."""

    timeout_seconds: Annotated[float, Field(ge=0.1, le=60)] = 5.0
    """Maximum processor time of a program of the tool python. Its
    maximum wall time is three times as long.
    """

    memory_mb: Annotated[int, Field(ge=64, le=16_384)] = 512
    """Maximum memory of a program of the tool python, in units of 2**20 bytes."""


class OpenEnv(Frozen):
    """An OpenEnv server. Each turn of the policy is an action, to which the server responds with an
    observation and a reward. The reward term `environment` is the reward of the episode.
    """

    type: Literal["openenv"] = "openenv"

    server: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]
    """Name of a server in the setting OPENENV_URLS of the operator."""

    form: Literal["text", "template"] = "text"
    """Conversion of a turn to an action. text uses the turn without its thoughts, for servers whose action is
    a text. template uses the JSON arguments of a <tool_call> of `act`, which the chat template describes.
    """

    reward: Literal["sum", "last"] = "sum"
    """Reward of an episode: the sum of the rewards of its steps, or the last reward."""

    max_turns: Annotated[int, Field(ge=1, le=256)] = 8
    """Maximum number of actions per episode, after which the episode ends with its reward so far."""

    max_observation_tokens: Annotated[int, Field(ge=1, le=32_768)] = 32
    """Maximum length of an observation, in tokens. A longer observation is truncated."""

    observation_field: Annotated[str, Field(max_length=128)] = ""
    """Field of an observation that the policy reads. If empty, its only field, or all fields as JSON."""

    sessions: Annotated[int, Field(ge=1, le=256)] = 16
    """Maximum number of concurrent episodes. The server may allow fewer."""

    reset_seconds: Annotated[float, Field(ge=0.1, le=180)] = 60.0
    """Time limit for the response to a reset, which is tried three times."""

    step_seconds: Annotated[float, Field(ge=0.1, le=300)] = 60.0
    """Time limit for the response to an action, which is sent once."""

    wait_seconds: Annotated[float, Field(ge=0, le=540)] = 300.0
    """Maximum time to wait for a free session of the server, after which the run fails."""


Environment = Annotated[NoEnvironment | ToolUse | OpenEnv, Field(discriminator="type")]
