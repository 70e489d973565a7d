"""Compare prompt forms before launch to find the ones in which the policy's answers can be graded."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from backend.base.errors import InvalidConfig
from backend.base.text import clean_text
from backend.config.boxed import last_boxed
from backend.config.problems import BOX_INSTRUCTION
from backend.config.sections import PolicyConfig
from backend.runs.check_report import FormTrial
from worker.policy.model import Policy
from worker.policy.prompt_form import PromptForm, prompt_form
from worker.prompt import Prompt
from worker.types import Completion

MAX_PROMPTS, COMPLETIONS_PER_PROMPT = 8, 4
"""Number of prompts tried in each form, and number of completions of each prompt."""

MAX_CHARACTERS = 2_000
"""Maximum length, in characters, of each text that the report quotes."""

THINKING_VARIABLE = "enable_thinking"
"""Template variable that turns thinking on or off in Qwen3, SmolLM3 and others."""

Sample = Callable[[Policy, Sequence[Prompt], int], list[list[Completion]]]


@dataclass(frozen=True)
class Form:
    """A prompt form, as the policy's config expresses it."""

    name: str
    title: str
    changes: dict[str, Any]


def form_trials(
    policy: Policy, config: PolicyConfig, prompts: Sequence[Prompt], sample: Sample
) -> list[FormTrial]:
    """Return a trial of every form in which prompts can be given to the policy, the configured one first."""
    return [_trial(form, policy, config, prompts[:MAX_PROMPTS], sample) for form in _forms(policy, config)]


def _forms(policy: Policy, config: PolicyConfig) -> Iterator[Form]:
    current_settings = {
        name: getattr(config, name) for name in ("chat_template", "system_prompt", "chat_template_kwargs")
    }
    seen_changes = [current_settings]
    yield Form("own", "As in the form", current_settings)
    for form in _known_forms(str(policy.form.tokenizer.chat_template or "")):
        if form.changes not in seen_changes:
            seen_changes.append(form.changes)
            yield form


def _known_forms(template: str) -> Iterator[Form]:
    plain_settings: dict[str, Any] = {"chat_template": False, "system_prompt": "", "chat_template_kwargs": {}}
    yield Form("plain", "Plain text", plain_settings)
    if not template:
        return
    chat_changes = plain_settings | {"chat_template": True}
    yield Form("chat", "Chat template", chat_changes)
    yield Form("chat_boxed", "Chat, asked for a box", chat_changes | {"system_prompt": BOX_INSTRUCTION})
    if THINKING_VARIABLE in template:
        no_thinking = {"chat_template_kwargs": {THINKING_VARIABLE: False}}
        yield Form("chat_quiet", "Chat, thinking off", chat_changes | no_thinking)


def shorten(text: str) -> str:
    """Return a text in the form that the report quotes: storable and not too long."""
    text = clean_text(text)
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"


def _form(policy: Policy, config: PolicyConfig) -> PromptForm:
    return prompt_form(policy.form.tokenizer, config, policy.form.process)


def _trial(
    form: Form, policy: Policy, config: PolicyConfig, prompts: Sequence[Prompt], sample: Sample
) -> FormTrial:
    blank = FormTrial(
        name=form.name, title=form.title, policy=form.changes, prompt="",
        answered=None, truncated=None, tokens=None, refusal="",
    )  # fmt: skip
    try:
        trial_policy = replace(policy, form=_form(policy, config.with_(**form.changes)))
        text = trial_policy.form.text(prompts[0])
        completions = [
            completion
            for group in sample(trial_policy, prompts, COMPLETIONS_PER_PROMPT)
            for completion in group
        ]
    except InvalidConfig as error:
        return blank.model_copy(update={"refusal": error.errors[0].message})
    count = len(completions)
    return blank.model_copy(
        update={
            "prompt": shorten(text),
            "answered": sum(last_boxed(completion.text) is not None for completion in completions) / count,
            "truncated": sum(completion.is_truncated for completion in completions) / count,
            "tokens": sum(len(completion.ids) for completion in completions) / count,
        }
    )
