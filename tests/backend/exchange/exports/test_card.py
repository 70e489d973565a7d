"""Tests of model cards: their content, and hostile text that must not change their layout."""

import json
import re
from typing import Any

import numpy as np
import pytest
import yaml
from markdown_it import MarkdownIt

from backend.config.merge import resolve
from backend.exchange.exports.card import model_card, wilson
from backend.exchange.exports.facts import CardFacts
from backend.exchange.exports.markdown import fence_code, inline, quote_yaml
from backend.metrics.series import Points


def make_facts(**fields):
    defaults: dict[str, Any] = {
        "name": "brave-otter",
        "variant": "dapo",
        "notes": "",
        "config": resolve({"preset": "dapo", "policy": {"name": "Qwen/Qwen3-4B"}, "steps": 30}),
        "step": 20,
        "last_step": 30,
        "verdict": "healthy",
        "onset": None,
        "cause": "",
        "versions": {"torch": "2.13.0", "sandbox": ["bubblewrap"]},
        "device": "cuda:0",
        "curves": {
            "reward/mean": Points(np.arange(21), np.arange(21) / 10),
            "eval/accuracy": Points(np.array([0, 10, 20]), np.array([0.25, np.nan, 0.5])),
        },
    }
    return CardFacts(**defaults | fields)


def front_matter(card):
    match = re.fullmatch(r"---\n(.*?)\n---\n.*", card, re.DOTALL)
    assert match is not None
    return yaml.safe_load(match[1])


def html(card):
    return MarkdownIt("gfm-like", {"html": True, "linkify": False}).render(card.split("\n---\n", 1)[1])


def test_the_front_matter_is_what_the_hub_reads():
    assert front_matter(model_card(make_facts())) == {
        "license": "unknown",
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "base_model": "Qwen/Qwen3-4B",
        "base_model_relation": "finetune",
        "tags": ["grpo", "reinforcement-learning", "dapo"],
    }


def test_an_adapter_is_called_one_unless_it_was_merged():
    config = resolve({"policy": {"name": "Qwen/Qwen3-4B", "adapter": {"type": "lora"}}})
    adapter_card, merged_card = (
        front_matter(model_card(make_facts(config=config), is_merged=merged_card))
        for merged_card in (False, True)
    )
    assert (adapter_card["library_name"], adapter_card["base_model_relation"]) == ("peft", "adapter")
    assert (merged_card["library_name"], merged_card["base_model_relation"]) == ("transformers", "finetune")


def test_a_local_policy_is_not_a_base_model_of_the_hub():
    assert "base_model" not in front_matter(
        model_card(make_facts(config=resolve({"policy": {"name": "tiny"}})))
    )


def test_the_card_has_recipe_curves_evaluation_and_config():
    card = model_card(make_facts())
    assert "Preset DAPO (arXiv:2503.14476). The run minimises" in card
    assert "| objective.surrogate.eps\\_high | 0.28 |" in card
    assert "| step | reward/mean | eval/accuracy |" in card
    assert "| 0 | 0 | 0.25 |" in card
    assert "| 20 | 2 | 0.5 |" in card
    assert "| eval/accuracy | 0.5 | 0.415 to 0.585 | 20 |" in card
    assert "Verdict on the run up to step 30: healthy." in card
    assert "| torch | 2.13.0 |" in card
    [config] = re.findall(r"```json\n(.*?)\n```", card, re.DOTALL)
    assert json.loads(config) == make_facts().config.model_dump(mode="json")


def test_each_field_of_another_section_type_has_a_row():
    config = resolve({"objective": {"kl": {"type": "k3"}}})
    card = model_card(make_facts(config=config))
    assert "| objective.kl.type | k3 |" in card
    assert "| objective.kl.coef | 0.04 |" in card


def test_rows_of_the_curves_are_evaluated_steps():
    evaluated_steps = np.arange(0, 81, 10)
    curves = {
        "reward/mean": Points(np.arange(1, 82), np.ones(81)),
        "eval/accuracy": Points(evaluated_steps, evaluated_steps / 100),
    }
    curve = model_card(make_facts(curves=curves)).split("## Curves")[1].split("## ")[0]
    steps = [int(step) for step in re.findall(r"^\| (\d+) \|", curve, re.MULTILINE)]
    assert steps == [*evaluated_steps, 81]


def test_a_few_evaluations_are_listed_among_other_steps():
    curves = {
        "reward/mean": Points(np.arange(1, 82), np.ones(81)),
        "eval/accuracy": Points(np.array([40]), np.array([0.5])),
    }
    curve = model_card(make_facts(curves=curves)).split("## Curves")[1].split("## ")[0]
    steps = [int(step) for step in re.findall(r"^\| (\d+) \|", curve, re.MULTILINE)]
    assert len(steps) == 10
    assert {1, 40, 81} <= set(steps)


def test_a_suite_shows_its_recorded_interval():
    accuracy_by_suffix = {"": 0.5, "_low": 0.41, "_high": 0.625}
    steps = np.array([10, 20])
    curves = {
        f"eval/math500/accuracy{suffix}": Points(steps, np.array([0.1, accuracy]))
        for suffix, accuracy in accuracy_by_suffix.items()
    }
    card = model_card(make_facts(curves=curves))
    assert "| eval/math500/accuracy | 0.5 | 0.410 to 0.625 | 20 |" in card
    assert "accuracy\\_low" not in card
    assert "accuracy_low" not in card


def test_the_interval_is_a_wilson_interval():
    low, high = wilson(0.5, 128)
    assert (round(low, 4), round(high, 4)) == (0.4147, 0.5853)
    assert wilson(0.0, 10)[0] == 0.0
    assert wilson(1.0, 10)[1] == pytest.approx(1.0)


HOSTILE_TEXTS = [
    "<script>alert(1)</script>",
    "[a](javascript:x) ![b](https://evil.example/p.png)",
    "| a | b |\n| --- | --- |",
    "x\n# Title\n- item\n```\nend\n````",
    "---\nlicense: mit\n---",
    "www.evil.example https://evil.example @everyone",
    "\u202egnp.exe\x00\x1b[31m\u2028",
    '": [1], "\\u0041',
]


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_names_and_notes_do_not_change_the_layout(text):
    plain_html, hostile_html = (
        html(model_card(make_facts(name=field, variant=field, notes="n"))) for field in ("name", text)
    )
    assert re.findall(r"<(/?\w+)", plain_html) == re.findall(r"<(/?\w+)", hostile_html)
    html_with_notes = html(model_card(make_facts(notes=text)))
    assert [tag for tag in re.findall(r"<(/?\w+)", html_with_notes) if tag not in {"p", "/p"}] == [
        tag
        for tag in re.findall(r"<(/?\w+)", html(model_card(make_facts(notes="n"))))
        if tag not in {"p", "/p"}
    ]
    assert front_matter(model_card(make_facts(name=text, notes=text))) == front_matter(
        model_card(make_facts())
    )


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_hostile_text_is_a_single_yaml_scalar(text):
    parsed_yaml = yaml.safe_load(f"a: {quote_yaml(text)}\nb: 1\n")
    assert parsed_yaml["b"] == 1
    assert isinstance(parsed_yaml["a"], str)
    assert "\n" not in inline(text)
    assert fence_code(text).count("\n") >= text.count("\n")
