"""Build the actions of an OpenEnv server's steps from the policy's turns.

text       the turn without its thoughts, for environments whose action is one text
template   the arguments of the turn's first call, <tool_call>{"name": "act", "arguments": {...}}</tool_call>

Both are checked against the JSON Schema of the server before they are sent.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jsonschema_rs

from backend.base.text import clean_text, read_json
from backend.config.environments import OpenEnv
from backend.rollouts.tags import CLOSE_TAG
from worker.policy.model import Policy
from worker.rollout.tool_calls import CallForm, Frame, ParsedCall, find_tagged
from worker.rollout.tools import ToolCall

ACTION_FUNCTION = "act"
"""Name of the only function that a chat template shows."""

MAX_CHARACTERS = 20_000
"""Maximum length of an action's text, in characters."""

METADATA_PROPERTY = "metadata"
"""Property of every OpenEnv action that the policy does not set."""


class BadSchema(Exception):
    """Raised if the server's schema cannot be used."""


class BadAction(Exception):
    """Raised if a turn holds no valid action. The policy observes the reason."""


class ActionSchema:
    """The actions that a server accepts. The constructor raises BadSchema if the server's schema is
    invalid.
    """

    def __init__(self, schema: Any) -> None:
        if not isinstance(schema, dict) or not isinstance(schema.get("properties", {}), dict):
            raise BadSchema("its schema of actions is not an object")
        try:
            self._validator = jsonschema_rs.validator_for(
                schema, offline=True, pattern_options=jsonschema_rs.RegexOptions()
            )
        except ValueError as error:
            raise BadSchema("its schema of actions is not a JSON Schema") from error
        properties = schema.get("properties", {})
        self.shown_schema = {
            **schema,
            "properties": {key: properties[key] for key in properties if key != METADATA_PROPERTY},
        }
        """The schema that a chat template shows."""

    @property
    def text_field(self) -> str:
        """Return the one field that holds a text. Raises BadSchema if actions are anything else."""
        fields = self.shown_schema["properties"]
        [name, *other_fields] = fields or [""]
        if other_fields or not isinstance(fields.get(name), Mapping) or fields[name].get("type") != "string":
            names = ", ".join(map(repr, list(fields)[:8])) or "none"
            raise BadSchema(
                f"its actions have the fields {names}, and form = text takes one text: use form = template"
            )
        return name

    def checked(self, action: dict[str, Any]) -> dict[str, Any]:
        """Return the action, or raise BadAction if the schema does not allow it."""
        try:
            error = next(iter(self._validator.iter_errors(action)), None)
        except ValueError:  # A name contains half of a surrogate pair.
            raise BadAction("expected names of Unicode text") from None
        if error:
            raise BadAction(error.message)
        return action


class TextForm:
    """The complete turn is the action."""

    ends_turn = True
    marks: Sequence[str] = ()

    def __init__(self, name: str, around: Frame) -> None:
        self.name, self.around = name, around

    def find(self, text: str) -> ParsedCall:
        """See CallForm."""
        close_position = text.rfind(CLOSE_TAG)
        start = close_position + len(CLOSE_TAG) if close_position >= 0 else 0
        return ParsedCall(ToolCall(self.name, text[start:].strip()), start, len(text))

    def frame(self, call: ToolCall) -> Frame:  # noqa: ARG002 - of the protocol
        """See CallForm."""
        return self.around


class ArgumentsForm:
    """The first call of a turn holds the action. A call inside thoughts is ignored."""

    ends_turn = True
    marks: Sequence[str] = ()

    def __init__(self, name: str, around: Frame) -> None:
        self.name, self.around = name, around

    def find(self, text: str) -> ParsedCall | None:
        """See CallForm."""
        return find_tagged(text, lambda content: ToolCall(self.name, content))

    def frame(self, call: ToolCall) -> Frame:  # noqa: ARG002 - of the protocol
        """See CallForm."""
        return self.around


class Form(NamedTuple):
    """The form of a run, which converts texts into actions."""

    calls: CallForm
    is_text: bool

    def action(self, call: ToolCall, schema: ActionSchema) -> dict[str, Any]:
        """Return the action of a turn, or raise BadAction."""
        if len(call.text) > MAX_CHARACTERS:
            raise BadAction(f"expected at most {MAX_CHARACTERS:,} characters")
        if self.is_text:
            return schema.checked({schema.text_field: clean_text(call.text)})
        return schema.checked(_arguments(call.text))


def action_form(config: OpenEnv, policy: Policy) -> Form:
    """Return the form that a config selects.

    Raise InvalidConfig if the chat template lacks a needed turn.
    """
    stops = [policy.tokenizer.decode([index]) for index in policy.stop_ids]
    is_text = config.form == "text"
    if not policy.form.chat_template:
        around = Frame("\n", "\n")
    else:
        around = Frame(*policy.form.answer_frame(stops, role="user" if is_text else "tool"))
    kind = TextForm if is_text else ArgumentsForm
    return Form(kind(config.server, around), is_text)


def act_schema(schema: ActionSchema) -> dict[str, Any]:
    """Return the function definition that a chat template shows."""
    function = {
        "name": ACTION_FUNCTION,
        "description": "Acts in the environment.",
        "parameters": schema.shown_schema,
    }
    return {"type": "function", "function": function}


def _arguments(text: str) -> dict[str, Any]:
    try:
        tool_call = read_json(text, constants=_refuse_constant)
        name, arguments = tool_call["name"], tool_call["arguments"]
        arguments = (
            read_json(arguments, constants=_refuse_constant) if isinstance(arguments, str) else arguments
        )
    except (ValueError, KeyError, TypeError):
        raise BadAction(f'expected JSON such as {{"name": "{ACTION_FUNCTION}", "arguments": {{}}}}') from None
    if name != ACTION_FUNCTION or not isinstance(arguments, dict):
        raise BadAction(f"expected the name {ACTION_FUNCTION!r} and an object of arguments")
    return arguments


def _refuse_constant(name: str) -> float:
    raise ValueError(name)
