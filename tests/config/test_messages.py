"""Tests of conversations in rows: accepted prompts, and refusals with a reason."""

import pytest

from backend.config.columns import Columns, cell
from backend.config.messages import read_messages, read_tools
from backend.config.rows import check_row

USER_MESSAGE = {"role": "user", "content": "1+1=?"}


def test_nulls_are_removed_and_text_parts_become_text():
    content_parts = [{"type": "text", "text": "1+1"}, {"type": "text", "text": "=?"}]
    messages = read_messages([{"role": "user", "content": content_parts, "name": None, "tool_calls": None}])
    assert messages == [USER_MESSAGE]


@pytest.mark.parametrize(
    ("messages", "phrase"),
    [
        ([], "expected text or a list of messages, got []"),
        (["x"], "expected text or a list of messages"),
        ([USER_MESSAGE, None], "expected text or a list of messages"),
        (
            [{"role": "human", "content": "x"}],
            "message 1: role: expected one of system, user, assistant, tool",
        ),
        ([{"role": ["user"], "content": "x"}], "message 1: role: expected one of"),
        ([{"from": "human", "value": "x"}], "message 1: has no role; its keys are 'from', 'value'"),
        ([{"role": "user"}], "message 1: content: expected text, got null"),
        ([{"role": "user", "content": 1}], "message 1: content: expected text, got 1"),
        ([{"role": "user", "content": []}], "message 1: content: expected text, got []"),
        (
            [{"role": "user", "content": " "}],
            "at least one message with the role `user` or `tool` must have content",
        ),
        (
            [USER_MESSAGE, {"role": "assistant", "content": "2"}],
            "the last message must have the role `user` or `tool`",
        ),
        (
            [{"role": "system", "content": "x"}],
            "at least one message with the role `user` or `tool` must have content",
        ),
        ([USER_MESSAGE | {"weight": 1}], '"weight" is not a key of a message'),
        ([USER_MESSAGE | {"tool_calls": [1]}], "message 1: tool_calls: expected a list of calls"),
        ([USER_MESSAGE | {"name": 3}], "message 1: name: expected text, got 3"),
        ([USER_MESSAGE] * 1001, "has 1,001 messages; expected at most 1,000"),
        ([{"role": "user", "content": [{"type": "text", "text": 3}]}], "content: expected text"),
    ],
)
def test_an_invalid_conversation_is_refused_by_name(messages, phrase):
    with pytest.raises(ValueError, match=r".") as error_info:
        read_messages(messages)
    assert phrase in str(error_info.value)


@pytest.mark.parametrize("kind", ["image", "image_url", "input_audio", "audio", "video", "file"])
def test_images_and_audio_are_refused_by_name(kind):
    conversation = [
        {"role": "user", "content": [{"type": "text", "text": "Look:"}, {"type": kind, kind: "x.png"}]}
    ]
    with pytest.raises(ValueError, match=f'content of the type "{kind}" is not supported'):
        check_row({"prompt": conversation, "answer": "1"}, Columns())


def test_tools_are_functions_or_their_json():
    tool = {"type": "function", "function": {"name": "add", "strict": None}}
    clean_tools = [{"type": "function", "function": {"name": "add"}}]
    assert read_tools([tool]) == clean_tools
    assert read_tools('[{"type": "function", "function": {"name": "add"}}]') == clean_tools
    assert read_tools(None) == read_tools("") == []
    for invalid_tools in ("nonsense", {}, [1], [{"function": "add"}], "[" * 100_000):
        with pytest.raises(ValueError, match=r"expected a list of (tools|functions)"):
            read_tools(invalid_tools)


def test_a_dot_selects_within_an_object_unless_a_field_has_that_name():
    row = {"reward_model": {"ground_truth": "34"}, "a.b": 1}
    assert (cell(row, "reward_model.ground_truth"), cell(row, "a.b")) == ("34", 1)
    for name in ("reward_model.style", "reward_model.ground_truth.x", "b", "a"):
        with pytest.raises(ValueError, match=f"field '{name}' is missing; the fields are"):
            cell(row, name)
