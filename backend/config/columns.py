"""The question and the answer of a row, by the columns that hold them."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from backend.config.boxed import last_boxed
from backend.config.messages import message_text, normalise_messages

AnswerForm = Literal["text", "boxed"]


class Columns(NamedTuple):
    """The names of the fields that hold prompt and answer; a dot leads into an object.

    One name for both is a conversation whose last message, of the assistant, is the answer.
    """

    prompt: str = "prompt"
    answer: str = "answer"


def cell(row: Mapping[str, Any], name: str) -> Any:
    """Return the value of a field; `a.b` is the field b of an object a, unless a field has that name.

    ValueError when there is none.
    """
    value: Any = row
    for segment in [name] if name in row else name.split("."):
        if not isinstance(value, Mapping) or segment not in value:
            field_names = ", ".join(repr(key[:60]) for key in list(row)[:10]) or "none"
            raise ValueError(f"field {name!r} is missing; the fields are {field_names}")
        value = value[segment]
    return value


def read_prompt(row: Mapping[str, Any], columns: Columns) -> Any:
    """Return the question of a row, text or messages, unchecked; ValueError when the field is missing."""
    value: Any = normalise_messages(cell(row, columns.prompt))
    is_exchange = columns.prompt == columns.answer and isinstance(value, list)
    return value[:-1] if is_exchange else value


def read_answer(row: Mapping[str, Any], columns: Columns) -> Any:
    """Return the answer of a row, text or a number, unchecked; ValueError when it is missing."""
    value = cell(row, columns.answer)
    if columns.prompt != columns.answer:
        return value
    messages: Any = normalise_messages(value)
    last: Any = messages[-1] if isinstance(messages, list) and messages else None
    if not isinstance(last, Mapping) or last.get("role") != "assistant":
        raise ValueError(
            f"field {columns.answer!r} is the answer, too: expected a list of messages that ends with "
            "one of the assistant"
        )
    return message_text(last, f"field {columns.answer!r}: the last message")


def stated_answer(text: str, *, after: str, form: AnswerForm) -> str:
    """Return the answer in the text of a row; a solution without a box is taken as a whole, for a check to
    find.
    """
    if form == "boxed":
        return last_boxed(text) or text.strip()
    return text.rpartition(after)[2].strip() if after else text.strip()
