"""Parse the answers of an OpenEnv server: untrusted JSON with observation, reward and end.

{"type": "observation", "data": {"observation": {...}, "reward": 0.5, "done": false}}
{"type": "error", "data": {"message": "...", "code": "VALIDATION_ERROR"}}
"""

import math
from typing import Any, NamedTuple

from backend.base.text import read_json

MAX_SHOWN_CHARACTERS = 200
"""Maximum number of characters of a server's message that are included in a reason."""

SURVIVABLE_ERRORS = ("VALIDATION_ERROR", "EXECUTION_ERROR")
"""Error codes after which a session continues: the action was invalid, or the environment raised."""


class Lost(Exception):
    """Raised if an episode cannot continue: its environment is gone, broke the protocol or took too long."""


class Full(Exception):
    """Raised if the server accepts no additional session."""

    def __init__(self, limit: int | None) -> None:
        super().__init__("the server takes no further session")
        self.limit = limit
        """Number of sessions that the server accepts at a time, or None if it did not report it."""


class Refused(Exception):
    """Raised if the environment refused an action or failed because of it. Its session continues."""


class ObservedStep(NamedTuple):
    """The answer to a reset or a step."""

    observation: dict[str, Any]
    reward: float | None
    done: bool


def read_answer(message: str | bytes) -> ObservedStep:
    """Return the answer in a message. Raise Full, Refused, or Lost if the message is not an answer."""
    if isinstance(message, bytes):
        raise Lost("it sent bytes instead of text")
    kind, data = _parse_type(message)
    if kind == "error":
        raise _error(data)
    if kind != "observation":
        raise Lost(f"it answered with type {_excerpt(kind)}, expected observation")
    observation, done = data.get("observation"), data.get("done")
    if not isinstance(observation, dict):
        raise Lost(f"its observation is {_kind(observation)}, expected an object")
    if not isinstance(done, bool):
        raise Lost(f"its done is {_kind(done)}, expected true or false")
    return ObservedStep(observation, _reward(data.get("reward")), done)


def _parse_type(message: str) -> tuple[Any, dict[str, Any]]:
    try:
        answer = read_json(message, constants=_refuse_constant)
    except ValueError as error:
        raise Lost("its answer is not JSON") from error
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or not isinstance(data, dict):
        raise Lost("its answer is not an object with a type and data")
    return answer.get("type"), data


def _error(data: dict[str, Any]) -> Exception:
    code, message = data.get("code"), data.get("message")
    text = message if isinstance(message, str) else ""
    if code == "CAPACITY_REACHED":
        max_sessions = data.get("max_sessions")
        return Full(max_sessions if type(max_sessions) is int and max_sessions > 0 else None)
    if code in SURVIVABLE_ERRORS:
        return Refused(text)
    return Lost(f"it answered with the error {_excerpt(code)}: {_excerpt(text)}")


def _reward(raw_reward: Any) -> float | None:
    """Return a finite reward, or None if it is null. True and false are 1 and 0."""
    if raw_reward is None:
        return None
    if not isinstance(raw_reward, int | float):
        raise Lost(f"its reward is {_kind(raw_reward)}, expected a number")
    try:
        reward = float(raw_reward)
    except OverflowError:
        reward = math.inf
    if not math.isfinite(reward):
        raise Lost("its reward is not finite")
    return reward


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _excerpt(value: Any) -> str:
    return repr(value)[:MAX_SHOWN_CHARACTERS]


def _kind(value: Any) -> str:
    return "missing" if value is None else f"of type {type(value).__name__}"
