"""Read prompts that are conversations: messages with roles, and the tools that they may call.

The format is that of chat templates and of OpenAI's API. A message has a `role`, a `content` and optionally
`name`, `tool_calls` and `tool_call_id`. Policies read only text, so images and audio are refused.
"""

import json
from collections.abc import Mapping
from typing import Any

ROLES = ("system", "user", "assistant", "tool")
MESSAGE_KEYS = ("role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content")
MAX_MESSAGES = 1000
_ANSWERED = ("user", "tool")
"""Roles that the last message may have, because the policy writes the next message."""

_SHAREGPT = {"human": "user", "gpt": "assistant", "observation": "tool"}
"""Roles by their names in ShareGPT. Other roles have the same name in both formats."""

Message = dict[str, Any]


def normalise_messages(value: object) -> object:
    """Convert messages in the ShareGPT format (`from`, `value`), and return other values unchanged."""
    return list(map(_normalise_message, value)) if isinstance(value, list) else value


def _normalise_message(value: object) -> object:
    if not isinstance(value, Mapping) or "role" in value or not {"from", "value"} <= value.keys():
        return value
    role, other_keys = value["from"], {key: item for key, item in value.items() if key in MESSAGE_KEYS}
    normalised_role = _SHAREGPT.get(role, role) if isinstance(role, str) else role
    return {"role": normalised_role, "content": value["value"], **other_keys}


def read_messages(value: object) -> list[Message]:
    """Return the valid messages of a row, with text as content and without null keys. Raises ValueError."""
    if not isinstance(value, list) or not value or not all(isinstance(message, Mapping) for message in value):
        raise ValueError(f"expected text or a list of messages, got {_excerpt(value)}")
    if len(value) > MAX_MESSAGES:
        raise ValueError(f"has {len(value):,} messages; expected at most {MAX_MESSAGES:,}")
    messages = [_read(message, f"message {number}") for number, message in enumerate(value, 1)]
    if not any(message["content"].strip() for message in messages if message["role"] in _ANSWERED):
        raise ValueError("at least one message with the role `user` or `tool` must have content")
    if (last_role := messages[-1]["role"]) not in _ANSWERED:
        raise ValueError(f"the last message must have the role `user` or `tool`, got {last_role!r}")
    return messages


def read_tools(value: object) -> list[dict[str, Any]]:
    """Return the tools of a row, given as a list of function schemas or its JSON. Raises ValueError."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else None
        except (ValueError, RecursionError):
            raise ValueError(f"expected a list of tools, got {_excerpt(value)}") from None
    if value is None:
        return []
    if not isinstance(value, list) or not all(map(_is_tool, value)):
        raise ValueError(
            f'expected a list of functions, each as {{"type": "function", "function": {{"name": ...}}}}, '
            f"got {_excerpt(value)}"
        )
    return [_drop_nulls(tool) for tool in value]


def question_text(value: object) -> str:
    """Return a prompt as readable text. Messages are separated by blank lines and begin with their role."""
    if isinstance(value, list) and value and all(isinstance(message, Mapping) for message in value):
        texts = [_message_text(message) for message in value]
        if len(value) == 1:
            return texts[0]
        return "\n\n".join(
            f"{message.get('role', '')}: {text}" for message, text in zip(value, texts, strict=True)
        )
    return value if isinstance(value, str) else "" if value is None else str(value)


def append_line(messages: list[Message], line: str) -> list[Message]:
    """Return the messages with a line appended to the last user message."""
    last_user = max((i for i, message in enumerate(messages) if message["role"] == "user"), default=None)
    if last_user is None or not line:
        return messages
    changed_message = {**messages[last_user], "content": f"{messages[last_user]['content'].rstrip()}\n{line}"}
    return [*messages[:last_user], changed_message, *messages[last_user + 1 :]]


def message_text(message: Mapping[str, Any], path: str) -> str:
    """Return the text of a message. Raises ValueError, with `path` in the message, if it is not text."""
    return _content(message.get("content"), path)


def _read(message: Mapping[str, Any], path: str) -> Message:
    fields: Message = _drop_nulls(message)
    if "role" not in fields:
        raise ValueError(f"{path}: has no role; its keys are {', '.join(map(repr, message)) or 'none'}")
    if (role := fields["role"]) not in ROLES:
        raise ValueError(f"{path}: role: expected one of {', '.join(ROLES)}, got {_excerpt(role)}")
    if bad_keys := [key for key in fields if key not in MESSAGE_KEYS]:
        raise ValueError(
            f"{path}: {_excerpt(bad_keys[0])} is not a key of a message; known are {', '.join(MESSAGE_KEYS)}"
        )
    calls = fields.get("tool_calls") or []
    if calls and (role != "assistant" or not isinstance(calls, list) or not all(map(_is_call, calls))):
        raise ValueError(f"{path}: tool_calls: expected a list of calls of functions by the assistant")
    for key in ("name", "tool_call_id", "reasoning_content"):
        if not isinstance(fields.get(key, ""), str):
            raise ValueError(f"{path}: {key}: expected text, got {_excerpt(fields[key])}")  # noqa: TRY004 - a value of the row
    fields["content"] = _content(fields.get("content", "" if calls else None), path)
    return fields


def _content(value: object, path: str) -> str:
    if isinstance(value, str):
        return value
    if not isinstance(value, list) or not value:
        raise ValueError(f"{path}: content: expected text, got {_excerpt(value)}")
    return "".join(_read_part_text(part, path) for part in value)


def _read_part_text(part: object, path: str) -> str:
    kind = part.get("type") if isinstance(part, Mapping) else None
    text = part.get("text") if isinstance(part, Mapping) else None
    if kind == "text" and isinstance(text, str):
        return text
    if isinstance(kind, str) and kind != "text":
        raise ValueError(
            f"{path}: content of the type {_excerpt(kind)} is not supported: "
            "a policy reads text alone, no images, audio or video"
        )
    raise ValueError(f"{path}: content: expected text, got {_excerpt(part)}")


def _is_tool(value: object) -> bool:
    function = value.get("function") if isinstance(value, Mapping) else None
    return isinstance(function, Mapping) and isinstance(function.get("name"), str)


def _is_call(value: object) -> bool:
    if not _is_tool(value):
        return False
    arguments = value["function"].get("arguments")  # type: ignore[index]
    return arguments is None or isinstance(arguments, str | Mapping)


def _drop_nulls(value: Any) -> Any:
    """Return the value without null keys, because Parquet stores every key in every message."""
    if isinstance(value, Mapping):
        return {key: _drop_nulls(item) for key, item in value.items() if item is not None}
    return [_drop_nulls(item) for item in value] if isinstance(value, list) else value


def _message_text(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    calls = message.get("tool_calls")
    call_lines = (
        [json.dumps(call, ensure_ascii=False, default=str) for call in calls if call]
        if isinstance(calls, list)
        else []
    )
    return "\n".join(filter(None, [str(content or ""), *call_lines]))


def _excerpt(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
