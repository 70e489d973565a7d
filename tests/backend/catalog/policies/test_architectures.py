"""Tests of the launch form's description of a model, which comes from config.json alone."""

import json

import pytest

from backend.base.settings import Settings
from backend.catalog.policies.architectures import (
    REFUSED_MODEL_TYPES,
    TESTED_MODEL_TYPES,
    architecture_error,
    architecture_note,
)
from backend.catalog.policies.offered import policy_errors, policy_offers
from backend.config.sections import PolicyConfig
from tests.models.architectures import ARCHITECTURES


def test_the_tested_types_match_those_of_the_model_tests():
    assert {kind for kind, _ in ARCHITECTURES.values()} == TESTED_MODEL_TYPES
    assert not REFUSED_MODEL_TYPES.keys() & TESTED_MODEL_TYPES


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}, ""),
        ({"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"]}, ""),
        ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, ""),
        ({"model_type": "new"}, ""),
        ({"model_type": "rwkv"}, "rwkv is not supported: its state cannot be divided among completions"),
        (
            {"model_type": "bert", "architectures": ["BertModel"]},
            "it is a BertModel; expected a causal language model",
        ),
        ({"model_type": "t5", "is_encoder_decoder": True}, "t5 is an encoder with a decoder"),
        ({"model_type": 7, "architectures": 7}, ""),
        ({"model_type": "a", "architectures": [None, {}]}, ""),
    ],
)
def test_a_config_explains_why_its_model_cannot_be_trained(config, reason):
    error = architecture_error(config)
    assert error.startswith(reason) if reason else error == ""


def test_a_note_names_what_is_untested():
    assert architecture_note({"model_type": "llama"}) == "llama"
    assert (
        architecture_note({"model_type": "qwen3_5", "text_config": {"model_type": "qwen3_5_text"}})
        == "qwen3_5"
    )
    assert architecture_note({"model_type": "mpt"}) == "mpt (an architecture that is not tested here)"


def test_an_unsupported_architecture_is_refused_at_the_form(tmp_path):
    directory = tmp_path / "mine"
    directory.mkdir()
    for name in ("model.safetensors", "tokenizer.json"):
        (directory / name).write_text("{}")
    (directory / "config.json").write_text(json.dumps({"model_type": "rwkv"}))
    settings = Settings(models_dir=tmp_path)
    (error,) = policy_errors(PolicyConfig(name="mine"), settings)
    assert (error.path, "rwkv is not supported" in error.message) == ("policy.name", True)
    assert "mine" not in {offer.name for offer in policy_offers(settings)}
