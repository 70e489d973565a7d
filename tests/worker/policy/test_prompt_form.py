"""Tests of prompts as the policy reads them: chat templates, messages, tools and refusals."""

import shutil
from typing import Any

import pytest
from tokenizers import normalizers
from transformers import PreTrainedTokenizerFast

from backend.base.errors import InvalidConfig
from backend.config.sections import PolicyConfig
from worker.policy import tokenizer_process
from worker.policy.model import BUILT_IN, load_policy
from worker.policy.prompt_form import PromptForm, prompt_form
from worker.policy.tokenizer_process import Refused, TokenizerProcess
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

SUM_PROMPT = Prompt("a/1", "1+1=?", "2", "a")
ADD_TOOL = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {}}},
}
CONVERSATION: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "1+1=?"},
    {"role": "assistant", "content": "", "tool_calls": [ADD_TOOL]},
    {"role": "tool", "content": "2"},
]


def tokenizer(template: str | None) -> PreTrainedTokenizerFast:
    built_tokenizer = build_tokenizer()
    built_tokenizer.chat_template = template
    return built_tokenizer


def form(template: str | None = CHATML, **policy: object) -> PromptForm:
    return prompt_form(tokenizer(template), PolicyConfig(**({"chat_template": True} | policy)))


def find_error(call) -> tuple[str, str]:
    with pytest.raises(InvalidConfig) as error_info:
        call()
    [error] = error_info.value.errors
    return error.path, error.message


def test_messages_and_tools_are_formatted_unchanged():
    prompt = Prompt("a/2", "as text", "2", "a", messages=CONVERSATION, tools=[ADD_TOOL])
    text = form(system_prompt="Not for messages.").text(prompt)
    assert text.startswith('<tools>[{"type": "function"')
    assert text.endswith(
        "<system>Be brief.</system><user>1+1=?</user><assistant></assistant><tool>2</tool><assistant>"
    )


@pytest.mark.parametrize(
    ("template", "policy", "path", "phrase"),
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
def test_a_template_that_cannot_open_an_answer_is_refused(template, policy, path, phrase):
    error_path, message = find_error(lambda: form(template, **policy))
    assert (error_path, phrase in message) == (f"policy.{path}", True), message


@pytest.mark.parametrize(
    ("fields", "phrase"),
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
def test_an_inconsistent_config_is_refused(fields, phrase):
    with pytest.raises(ValueError, match=r"system_prompt|chat_template_kwargs") as error_info:
        PolicyConfig(**fields)
    assert phrase in str(error_info.value)


LIMIT_MESSAGE = "it takes more than 3 seconds or 1 GiB of memory"

HANGING_TEMPLATE = (
    "{{ (10 ** (99999999 * messages | length)) | string }}"  # not constant-folded during compilation
)
LOOPING_TEMPLATE = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.fixture
def process_with_tokenizer(monkeypatch, tmp_path):
    """A function that saves a tokenizer and returns the process that runs it, with small limits."""
    monkeypatch.setattr(tokenizer_process, "CPU_SECONDS", 3)
    monkeypatch.setattr(tokenizer_process, "WALL_SECONDS_PER_CPU_SECOND", 1000)
    monkeypatch.setattr(tokenizer_process, "MEMORY_GB", 1)
    monkeypatch.setattr(tokenizer_process, "MAX_TRIES", 1)

    def format_in_process(template=None, growing=""):
        altered_tokenizer = tokenizer(template)
        if growing:
            add_growing_merges(altered_tokenizer, growing)
        altered_tokenizer.save_pretrained(tmp_path)
        return TokenizerProcess(tmp_path)

    return format_in_process


def test_a_template_that_escapes_or_fills_the_memory_is_refused(process_with_tokenizer):
    process = process_with_tokenizer(CHATML)
    for template, reason in (
        ("{{ 'a' * 10**10 }}", "it takes too much memory"),
        ("{{ 'a' | center(10**10) }}", "it takes too much memory"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{% include '/etc/passwd' %}", "no loader"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ):
        with pytest.raises(Refused, match=reason):
            process.apply([{"role": "user", "content": "?"}], tokenize=False, chat_template=template)


@pytest.mark.parametrize(
    "hostile",
    [
        HANGING_TEMPLATE,
        pytest.param(LOOPING_TEMPLATE, marks=pytest.mark.nightly),
        # Jinja would compute constants when it compiles the template.
        pytest.param("{{ ('a\n' * (messages | length * 10**7)) | indent(500) }}", marks=pytest.mark.nightly),
    ],
    ids=["inside C", "loop", "indent"],
)
def test_a_template_that_hangs_on_one_row_is_refused_there_and_the_next_row_works(
    process_with_tokenizer, hostile
):
    template = CHATML + "{% if messages[0].content == 'hang' %}" + hostile + "{% endif %}"
    chat_form = prompt_form(
        tokenizer(template), PolicyConfig(chat_template=True), process_with_tokenizer(template)
    )
    path, message = find_error(lambda: chat_form.ids(Prompt("a/2", "hang", "", "a")))
    assert path == "policy.chat_template"
    assert message.startswith("the policy's chat template refuses: it takes ")
    assert chat_form.text(SUM_PROMPT) == "<user>1+1=?</user><assistant>"
    assert chat_form.tokenizer.decode(chat_form.ids(SUM_PROMPT)) == chat_form.text(SUM_PROMPT)


def add_growing_merges(altered_tokenizer, letter):
    """Let the tokenizer double a letter 60 times."""
    doubling = [normalizers.Replace(letter, letter * 2) for _ in range(60)]
    altered_tokenizer.backend_tokenizer.normalizer = normalizers.Sequence(doubling)


def test_a_tokenizer_that_expands_a_text_endlessly_is_refused_before_the_run(process_with_tokenizer):
    with pytest.raises(Refused, match=LIMIT_MESSAGE):
        process_with_tokenizer(growing="a").probe()


def test_an_untrusted_policy_is_tested_before_it_is_loaded(settings, monkeypatch):
    directory = settings.models_dir / "mine"
    shutil.copytree(
        BUILT_IN["tiny"], directory, ignore=shutil.ignore_patterns("*.py", "__pycache__", "card.json")
    )
    policy = load_policy(PolicyConfig(name="mine", chat_template=True), settings)
    tiny_policy = load_policy(PolicyConfig(chat_template=True), settings)
    assert policy.form.process is not None
    assert tiny_policy.form.process is None
    assert policy.encode(SUM_PROMPT, room=0) == tiny_policy.encode(SUM_PROMPT, room=0)
    monkeypatch.setattr(
        TokenizerProcess, "probe", lambda _self: (_ for _ in ()).throw(Refused(LIMIT_MESSAGE))
    )
    path, message = find_error(lambda: load_policy(PolicyConfig(name="mine"), settings))
    assert (path, message) == ("policy.name", f"'mine': its tokenizer cannot be opened: {LIMIT_MESSAGE}")
