"""Formats of tool calls and their answers in a completion.

plain      [calculator: 12*34][408]              Toolformer, arXiv:2302.04761
           ```python ... ``` and ```output ...   ToRA, arXiv:2309.17452
equation   12*34=408                             the calculator of GSM8K, arXiv:2110.14168
template   <tool_call>{"name": ..., "arguments": {...}}</tool_call>, and the template's tool turn
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from backend.base.text import read_json
from backend.config.environments import ToolUse
from backend.rollouts.tags import CLOSE_TAG
from worker.policy.model import Policy
from worker.rollout.tools import SCHEMAS, ToolCall

BRACKETS = re.compile(r"\[(\w{1,40}):([^\[\]\n]*)\]")
FENCE = re.compile(r"```(?:python|py)[ \t]*\n(.*?)\n?```", re.DOTALL)
ARITHMETIC = re.compile(r"((?:[\d.()*+/^%×÷−-] ?){0,200}[\d.)]) ?=")
KEY = re.compile(r"([\w.()*+/^%-]{1,200})=")
OPENED, CLOSED = "<tool_call>", "</tool_call>"


class ParsedCall(NamedTuple):
    """The position of a call within a text, in characters."""

    call: ToolCall
    start: int
    end: int


class Frame(NamedTuple):
    """The text around an answer. It is written by the trainer, so control tokens in it are intended."""

    prefix: str
    suffix: str


class CallForm(Protocol):
    """The format of calls and their answers."""

    ends_turn: bool
    """True if a call is answered after the policy has ended its turn, False if directly after the call."""
    marks: Sequence[str]
    """Texts that can end a call. Only tokens that contain one are examined."""

    def find(self, text: str) -> ParsedCall | None:
        """Return the first call in the policy's text since the last answer, or None."""
        ...

    def frame(self, call: ToolCall) -> Frame:
        """Return the text around the answer."""
        ...


class PlainForm:
    """Calls in brackets, and fenced blocks of Python."""

    ends_turn = False

    def __init__(self, config: ToolUse) -> None:
        self.has_python = "python" in config.tools
        self.in_brackets = {name for name in config.tools if name != "python"}
        self.marks: Sequence[str] = [
            *(["]"] if self.in_brackets else []),
            *(["```"] if self.has_python else []),
        ]

    def find(self, text: str) -> ParsedCall | None:
        """See CallForm. Brackets count only if they name a tool, so that lists remain text."""
        calls = [
            ParsedCall(ToolCall(match[1], match[2].strip()), *match.span())
            for match in BRACKETS.finditer(text)
            if match[1] in SCHEMAS
        ]
        if self.has_python and (match := FENCE.search(text)):
            calls.append(ParsedCall(ToolCall("python", match[1]), *match.span()))
        return min(calls, key=lambda call: call.end, default=None)

    def frame(self, call: ToolCall) -> Frame:
        """See CallForm."""
        return Frame("\n```output\n", "\n```\n") if call.tool == "python" else Frame("[", "]")


class EquationForm:
    """Calls of the run's only tool, whose answer follows an equals sign."""

    ends_turn = False
    marks: Sequence[str] = ("=",)

    def __init__(self, config: ToolUse) -> None:
        [self.tool] = config.tools
        self.pattern = ARITHMETIC if self.tool == "calculator" else KEY

    def find(self, text: str) -> ParsedCall | None:
        """See CallForm."""
        match = self.pattern.search(text)
        return match and ParsedCall(ToolCall(self.tool, match[1].strip()), *match.span())

    def frame(self, call: ToolCall) -> Frame:  # noqa: ARG002 - required by the protocol
        """See CallForm."""
        return Frame("", "")


class TemplateForm:
    """Calls as JSON in a turn of the policy and answers in a tool turn, in the format of the chat template.

    Only the first call of a turn is answered. A call inside thoughts is ignored.
    """

    ends_turn = True
    marks: Sequence[str] = ()

    def __init__(self, policy: Policy) -> None:
        self.around = Frame(
            *policy.form.answer_frame([policy.tokenizer.decode([i]) for i in policy.stop_ids])
        )

    def find(self, text: str) -> ParsedCall | None:
        """See CallForm."""
        return find_tagged(text, _json_call)

    def frame(self, call: ToolCall) -> Frame:  # noqa: ARG002 - required by the protocol
        """See CallForm."""
        return self.around


def call_form(config: ToolUse, policy: Policy) -> CallForm:
    """Return the form that a config selects. Raise InvalidConfig if the chat template has no tool turn."""
    match config.form:
        case "plain":
            return PlainForm(config)
        case "equation":
            return EquationForm(config)
        case "template":
            return TemplateForm(policy)


def find_tagged(text: str, read: Callable[[str], ToolCall]) -> ParsedCall | None:
    """Return the first call between tags, as `read` from the text between them. Thoughts are skipped."""
    start = text.find(OPENED, max(0, text.rfind(CLOSE_TAG)))
    end = text.find(CLOSED, start)
    if start < 0 or end < 0:
        return None
    return ParsedCall(read(text[start + len(OPENED) : end]), start, end + len(CLOSED))


def _json_call(text: str) -> ToolCall:
    """Parse a call that a policy wrote as JSON, and describe the problem in the result if it is malformed."""
    try:
        tool_call = read_json(text)
        name, arguments = tool_call["name"], tool_call["arguments"]
        arguments = read_json(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, KeyError, TypeError):
        expected = 'expected JSON such as {"name": "calculator", "arguments": {"expression": "1+1"}}'
        return ToolCall("", "", expected)
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return ToolCall("", "", "expected a name and an object of arguments")
    parameter = next((schema[0] for tool, schema in SCHEMAS.items() if tool == name), "")
    if parameter and parameter not in arguments:
        return ToolCall(name, "", f"the argument {parameter!r} is missing")
    return ToolCall(name, str(arguments.get(parameter, "")))
