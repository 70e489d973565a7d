"""Prompts as the policy reads them: chat templates, messages, tools, and what is refused by name."""

import resource
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from backend.config.run import PolicyConfig
from backend.errors import InvalidConfig
from worker.policy import template_limits
from worker.policy.prompt_form import PromptForm, prompt_form
from worker.prompt import Prompt
from worker.warm_start.tokenizer import build_tokenizer

CHATML = (
    "{% if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if enable_thinking is defined and not enable_thinking %}"
    "<think></think>{% endif %}{% endif %}"
)
MISTRAL = (
    "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} {{ m.content }}"
    "</s>{% endif %}{% endfor %}"
)
NO_GENERATION_PROMPT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('No system role') }}{% endif %}" + CHATML

SUM = Prompt("a/1", "1+1=?", "2", "a")
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1+1=?"},
    {"role": "assistant", "content": "", "tool_calls": [TOOL]},
    {"role": "tool", "content": "2"},
]


def tokenizer(template: str | None) -> PreTrainedTokenizerFast:
    made = build_tokenizer()
    made.chat_template = template
    return made


def form(template: str | None = CHATML, **policy: object) -> PromptForm:
    return prompt_form(tokenizer(template), PolicyConfig(**({"chat_template": True} | policy)))


def refusal(call) -> tuple[str, str]:
    with pytest.raises(InvalidConfig) as caught:
        call()
    [error] = caught.value.errors
    return error.path, error.message


def test_plain_text_is_one_turn_of_the_user_behind_the_system_prompt():
    assert form().text(SUM) == "<user>1+1=?</user><assistant>"
    assert form(system_prompt="Box it.").text(SUM) == "<system>Box it.</system><user>1+1=?</user><assistant>"
    assert form(chat_template=False).text(SUM) == "1+1=?"


def test_the_ids_are_those_of_the_text():
    own = form(system_prompt="Box it.")
    assert own.tokenizer.decode(own.ids(SUM)) == own.text(SUM)


def test_variables_reach_the_template():
    own = form(chat_template_kwargs={"enable_thinking": False})
    assert own.text(SUM).endswith("<assistant><think></think>")


def test_messages_and_tools_are_written_as_they_are():
    talk = Prompt("a/2", "as text", "2", "a", messages=TALK, tools=[TOOL])
    text = form(system_prompt="Not for messages.").text(talk)
    assert text.startswith('<tools>[{"type": "function"')
    assert text.endswith(
        "<system>Be brief.</system><user>1+1=?</user><assistant></assistant><tool>2</tool><assistant>"
    )


def test_a_template_whose_user_turn_ends_where_the_answer_begins_needs_no_generation_prompt():
    assert form(MISTRAL).text(SUM) == "[INST] 1+1=? [/INST]"


@pytest.mark.parametrize(
    ("template", "policy", "path", "words"),
    [
        (None, {}, "chat_template", "has no chat template; expected false"),
        ("", {}, "chat_template", "has no chat template"),
        (NO_GENERATION_PROMPT, {}, "chat_template", "has no generation prompt"),
        ("{{ messages[0].content }}:", {}, "chat_template", "has no generation prompt"),
        (
            MISTRAL,
            {"chat_template_kwargs": {"enable_thinking": False}},
            "chat_template_kwargs",
            "does not read",
        ),
        ("{{ messages[0].nonsense.deep }}", {}, "chat_template", "the policy's chat template refuses: "),
        ("{% for %}", {}, "chat_template", "the policy's chat template refuses: "),
    ],
)
def test_a_template_that_cannot_open_an_answer_is_refused(template, policy, path, words):
    found, message = refusal(lambda: form(template, **policy))
    assert (found, words in message) == (f"policy.{path}", True), message


def test_what_a_template_does_not_take_is_named():
    own = form(NO_SYSTEM, system_prompt="x")
    assert refusal(lambda: own.text(SUM))[1] == ("the policy's chat template refuses: No system role")
    talk = Prompt("a/2", "as text", "2", "a", messages=TALK[:2], tools=[TOOL])
    assert "'a/2' has tools, which" in refusal(lambda: form(MISTRAL).text(talk))[1]


def test_messages_need_a_template():
    talk = Prompt("a/2", "as text", "2", "a", messages=TALK[1:2])
    path, message = refusal(lambda: form(chat_template=False).ids(talk))
    assert path == "policy.chat_template"
    assert message == "is false, but the prompt 'a/2' is a list of messages: expected true"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"system_prompt": "x"}, "system_prompt: needs policy.chat_template = true"),
        ({"chat_template_kwargs": {"a": 1}}, "chat_template_kwargs: needs policy.chat_template = true"),
        (
            {"chat_template": True, "chat_template_kwargs": {"chat_template": "x"}},
            "set by the trainer itself",
        ),
        ({"chat_template": True, "chat_template_kwargs": {"tokenize": False}}, "set by the trainer itself"),
        ({"chat_template": True, "chat_template_kwargs": {"a b": 1}}, "pattern"),
    ],
)
def test_a_config_without_sense_is_refused(fields, words):
    with pytest.raises(ValueError, match=r"system_prompt|chat_template_kwargs") as caught:
        PolicyConfig(**fields)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "0.2 seconds"),
        ("{{ 'a' * 10**10 }}", "bytes of memory"),
        ("{{ 'a' | center(10**10) }}", "bytes of memory"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% include '/etc/passwd' %}", "no loader"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ],
)
def test_a_hostile_template_is_refused_in_time_and_memory(monkeypatch, template, reason):
    monkeypatch.setattr(template_limits, "MOST_SECONDS", 0.2)
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    path, message = refusal(lambda: form(template))
    assert (path, reason in message) == ("policy.chat_template", True), message
    assert resource.getrlimit(resource.RLIMIT_DATA) == limits
    assert form().text(SUM) == "<user>1+1=?</user><assistant>"
