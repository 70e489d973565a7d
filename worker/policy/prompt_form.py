"""The form of a policy's prompts: plain text, or the chat template of its tokenizer."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backend.base.errors import FieldError, InvalidConfig
from backend.config.sections import PolicyConfig
from worker.policy.tokenizer_process import Refused, TokenizerProcess
from worker.prompt import Prompt

Messages = list[Mapping[str, Any]]

PROBE = "grpolab"
"""Word that no template contains, used to find the position at which the template inserts it."""


CALLED = "grpolabcalled"
"""Second probe word, used as a turn of the policy."""


@dataclass(frozen=True, slots=True)
class PromptForm:
    """Converts prompts to token ids. Methods raise InvalidConfig if a prompt cannot be written in this
    form.
    """

    tokenizer: Any
    chat_template: bool = False
    """True if prompts are written with the chat template, False if they are plain text."""
    system_prompt: str = ""
    """System message that precedes a prompt given as plain text."""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Variables of the chat template, for example enable_thinking."""
    process: TokenizerProcess | None = None
    """Process that runs the tokenizer and its template. None for built-in policies, which need no other
    process.
    """

    def ids(self, prompt: Prompt) -> list[int]:
        """Return the token ids of a prompt."""
        if not self.chat_template:
            return self.encode(self.text(prompt))
        return list(self._apply_template(prompt, tokenize=True))

    def encode(self, text: str, **options: Any) -> list[int]:
        """Return the token ids of a text that the policy did not write, for example a tool's answer."""
        return self.encode_all([text], **options)[0]

    def encode_all(self, texts: Sequence[str], **options: Any) -> list[list[int]]:
        """Return the token ids of several texts with one call of the process."""
        if self.process is None:
            return [list(self.tokenizer.encode(text, **options)) for text in texts]
        try:
            return self.process.encode(texts, **options)
        except Refused as error:
            reason = f"the policy's tokenizer refuses {shorten(''.join(texts))!r}: {error}"
            raise invalid("policy.name", reason) from error

    def text(self, prompt: Prompt) -> str:
        """Return the text of a prompt that the policy reads."""
        if not prompt.text.strip():
            raise invalid("problems", f"a prompt must contain text, got {prompt.text!r}")
        if self.chat_template:
            return str(self._apply_template(prompt, tokenize=False))
        if prompt.messages:
            raise invalid(
                "policy.chat_template",
                f"is false, but the prompt {prompt.id!r} is a list of messages: expected true",
            )
        return prompt.text

    def check(self, name: str) -> None:
        """Raise InvalidConfig if the template is missing, opens no answer or ignores a variable."""
        if not self.chat_template:
            return
        if not self.tokenizer.chat_template:
            raise invalid("policy.chat_template", f"{name!r} has no chat template; expected false")
        templates = self.tokenizer.chat_template
        source = templates if isinstance(templates, str) else "".join(templates.values())
        for key in self.template_kwargs:
            if not re.search(rf"\b{re.escape(key)}\b", source):
                raise invalid(
                    "policy.chat_template_kwargs", f"the chat template of {name!r} does not read {key!r}"
                )
        if not self._opens_answer():
            raise invalid(
                "policy.chat_template",
                f"the chat template of {name!r} has no generation prompt: the policy would have to open its "
                "own turn. Expected a template that reads add_generation_prompt, or false",
            )

    def answer_frame(self, stops: Sequence[str], *, role: str = "tool") -> tuple[str, str]:
        """Return the template's text before and after a turn of a tool or user.

        The text starts after one of `stops`, which ends the policy's turn, and ends where its next turn
        begins. Raise InvalidConfig if the template has no such turn.
        """
        policy_turns: Messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": CALLED}]
        rendered = str(self._render([*policy_turns, {"role": role, "content": PROBE}]))
        turn_text = rendered.rpartition(CALLED)[2]
        stop_text = next((stop for stop in stops if stop and turn_text.startswith(stop)), "")
        prefix, marker, suffix = turn_text.removeprefix(stop_text).partition(PROBE)
        if not marker or CALLED not in rendered:
            reason = f"needs a turn of a {role} after the policy's own, which its chat template lacks"
            expected = f"choose another form, or a template that reads the role {role}"
            raise invalid("environment.form", f"{reason}: {expected}")
        return prefix, suffix

    def _opens_answer(self) -> bool:
        """Return whether the policy's turn is open after the prompt.

        Either add_generation_prompt adds a text, or the user's turn ends where the answer begins, as in
        Mistral's template.
        """
        user_turn: Messages = [{"role": "user", "content": "1+1=?"}]
        closed_prompt, open_prompt = (
            self._render(user_turn, add_generation_prompt=adds_prompt) for adds_prompt in (False, True)
        )
        if closed_prompt != open_prompt:
            return True
        conversation = self._render(
            [*user_turn, {"role": "assistant", "content": PROBE}], add_generation_prompt=False
        )
        return conversation.partition(PROBE)[0].strip() == closed_prompt.strip() and PROBE in conversation

    def _apply_template(self, prompt: Prompt, *, tokenize: bool) -> Any:
        messages = list(prompt.messages) or self._as_messages(prompt.text)
        tools = list(prompt.tools) or None
        rendered = self._render(messages, tools=tools, tokenize=tokenize)
        if tools and rendered == self._render(messages, tokenize=tokenize):
            raise invalid(
                "policy.chat_template",
                f"the prompt {prompt.id!r} has tools, which the policy's chat template does not show",
            )
        return rendered

    def _as_messages(self, text: str) -> Messages:
        system = [{"role": "system", "content": self.system_prompt}] if self.system_prompt else []
        return [*system, {"role": "user", "content": text}]

    def _render(self, messages: Messages, **options: Any) -> Any:
        options = {"tokenize": False, "add_generation_prompt": True} | options | dict(self.template_kwargs)
        try:
            if self.process is not None:
                return self.process.apply(messages, **options)
            return self.tokenizer.apply_chat_template(messages, return_dict=False, **options)
        except Exception as error:  # A template may raise any error about messages.
            reason = shorten(str(error) or type(error).__name__, 200)
            raise invalid("policy.chat_template", f"the policy's chat template refuses: {reason}") from error


def prompt_form(tokenizer: Any, config: PolicyConfig, process: TokenizerProcess | None = None) -> PromptForm:
    """Return the form that a config selects. Raise InvalidConfig if the tokenizer lacks it."""
    form = PromptForm(
        tokenizer, config.chat_template, config.system_prompt, config.chat_template_kwargs, process
    )
    form.check(config.name)
    return form


def shorten(text: str, limit: int = 60) -> str:
    """Return a text in the form in which error messages quote it."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


def invalid(path: str, message: str) -> InvalidConfig:
    """Return an InvalidConfig error for one field."""
    return InvalidConfig([FieldError(path, message)])
