"""Tests of prompts in published chat templates: form, system prompt, tools and opened tags."""

from dataclasses import replace
from pathlib import Path

import pytest

from backend.base.errors import InvalidConfig
from backend.config.sections import PolicyConfig
from tests.models.architectures import build
from worker.policy.model import as_policy
from worker.policy.prompt_form import PromptForm, prompt_form
from worker.prompt import Prompt
from worker.warm_start.tokenizer import build_tokenizer

TEMPLATES_DIRECTORY = Path(__file__).parent / "templates"
SUM_PROMPT = Prompt("a/1", "1+1=?", "2", "a")
LLAMA_START, LLAMA_END = "<|start_header_id|>", "<|end_header_id|>\n\n"


def tokenizer(name: str):
    built_tokenizer = build_tokenizer()
    built_tokenizer.add_special_tokens({"bos_token": "<s>"})
    built_tokenizer.chat_template = (TEMPLATES_DIRECTORY / f"{name}.jinja").read_text()
    return built_tokenizer


def form(name: str, **policy: object) -> PromptForm:
    return prompt_form(tokenizer(name), PolicyConfig(**({"chat_template": True} | policy)))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("gemma2", "<s><start_of_turn>user\n1+1=?<end_of_turn>\n<start_of_turn>model\n"),
        (
            "llama3",
            f"<s>{LLAMA_START}user{LLAMA_END}1+1=?<|eot_id|>{LLAMA_START}assistant{LLAMA_END}",
        ),
        ("mistral", "<s>[INST] 1+1=? [/INST]"),
        ("qwen3", "<|im_start|>user\n1+1=?<|im_end|>\n<|im_start|>assistant\n"),
    ],
)
def test_a_question_is_one_turn_followed_by_an_open_answer(name, text):
    assert form(name).text(SUM_PROMPT) == text


@pytest.mark.parametrize(
    ("name", "reason"),
    [("gemma2", "System role not supported"), ("mistral", "Conversation roles must alternate")],
)
def test_a_template_without_system_role_refuses_it_with_its_own_message(name, reason):
    with pytest.raises(InvalidConfig, match=f"chat template refuses: {reason}"):
        form(name, system_prompt="Box it.").text(SUM_PROMPT)


@pytest.mark.parametrize("opens", [False, True])
@pytest.mark.parametrize("name", ["gemma2", "llama3", "mistral", "qwen3"])
def test_an_opened_think_tag_is_detected(name, opens):
    """Distilled models end the same templates with <think>."""
    templated = tokenizer(name)
    templated.chat_template += "{% if add_generation_prompt %}{{ '<think>\\n' }}{% endif %}" if opens else ""
    policy = as_policy(build("llama3"), templated, name=name, chat_template=True)
    assert policy.opens_think == opens


def test_a_think_tag_that_is_closed_immediately_is_not_open():
    qwen_tokenizer = tokenizer("qwen3")
    policy = as_policy(build("llama3"), qwen_tokenizer, name="qwen3")
    without_thinking = PolicyConfig(chat_template=True, chat_template_kwargs={"enable_thinking": False})
    assert not replace(policy, form=prompt_form(qwen_tokenizer, without_thinking)).opens_think
