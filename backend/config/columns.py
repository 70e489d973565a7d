"""Read the question and the answer of a row from the columns that contain them."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from backend.config.boxed import last_boxed
from backend.config.messages import message_text, normalise_messages

AnswerForm = Literal["text", "boxed"]


class Columns(NamedTuple):
    """The names of the fields that contain the prompt and the answer. A dot separates nested fields.

    If both names are equal, the field is a conversation, and its last message, by the assistant, is the
    answer.
    """

    prompt: str = "prompt"
    answer: str = "answer"


def cell(row: Mapping[str, Any], name: str) -> Any:
    """Return the value of a field. `a.b` is the field b of the object a, unless a field is named `a.b`.

    Raises ValueError if the field is missing.
    """
    value: Any = row
    for segment in [name] if name in row else name.split("."):
        if not isinstance(value, Mapping) or segment not in value:
            field_names = ", ".join(repr(key[:60]) for key in list(row)[:10]) or "none"
            raise ValueError(f"field {name!r} is missing; the fields are {field_names}")
        value = value[segment]
    return value


def read_prompt(row: Mapping[str, Any], columns: Columns) -> Any:
    """Return the question of a row, unchecked: text or messages. Raises ValueError if it is missing."""
    value: Any = normalise_messages(cell(row, columns.prompt))
    is_exchange = columns.prompt == columns.answer and isinstance(value, list)
    return value[:-1] if is_exchange else value


def read_answer(row: Mapping[str, Any], columns: Columns) -> Any:
    """Return the answer of a row, unchecked: text or a number. Raises ValueError if it is missing."""
    value = cell(row, columns.answer)
    if columns.prompt != columns.answer:
        return value
    messages: Any = normalise_messages(value)
    last_message: Any = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last_message, Mapping) or last_message.get("role") != "assistant":
        raise ValueError(
            f"field {columns.answer!r} is the answer, too: expected a list of messages that ends with "
            "one of the assistant"
        )
    return message_text(last_message, f"field {columns.answer!r}: the last message")


def stated_answer(text: str, *, marker: str, form: AnswerForm) -> str:
    """Return the answer in a row's text. A solution without a box is
    returned whole, so that checks see it.
    """
    if form == "boxed":
        return last_boxed(text) or text.strip()
    return text.rpartition(marker)[2].strip() if marker else text.strip()
