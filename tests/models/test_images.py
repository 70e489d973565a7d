"""Tests of models that also read images, of which only the text model is trained, adapted and counted."""

import json

import pytest
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from backend.base.errors import InvalidConfig
from backend.base.settings import Settings
from backend.catalog.policies.memory import estimate_memory
from backend.catalog.policies.model_shape import ModelShape
from backend.catalog.policies.text_model import FULLY_LOADED_MODEL_TYPES, is_outside_text_model
from backend.catalog.policies.weight_files import read_weights
from backend.config.adapters import LoraAdapter
from backend.config.run import RunConfig
from backend.config.sections import PolicyConfig
from tests.models.architectures import save
from worker.policy.critic import with_value_head
from worker.policy.model import load_policy

CONTEXT_TOKENS = 512


@pytest.fixture(scope="module", params=["gemma3_images", "qwen3.5_images"])
def named_model(request, tmp_path_factory):
    models = tmp_path_factory.mktemp("models")
    save(request.param, models / request.param, vocabulary=128)
    return request.param, Settings(models_dir=models)


def load_named_policy(named_model, **fields):
    name, settings = named_model
    return load_policy(PolicyConfig(name=name, dtype="float32", **fields), settings)


def read_stored_shape(named_model):
    name, settings = named_model
    directory = settings.models_dir / name
    config = json.loads((directory / "config.json").read_text())
    return config, ModelShape.from_config(config, read_weights(directory))


def test_an_overlong_prompt_is_refused(named_model):
    policy = load_named_policy(named_model)
    assert policy.context == CONTEXT_TOKENS
    with pytest.raises(InvalidConfig, match="expected at most 448"):
        policy.encode("1" * 500, room=64)


def test_only_the_text_model_trains(named_model):
    policy = load_named_policy(named_model)
    for model in (policy.model, with_value_head(policy.model)):
        trained_names = {name for name, weight in model.named_parameters() if weight.requires_grad}
        image_names = {name for name, _ in model.named_parameters() if is_outside_text_model(name)}
        assert trained_names == {name for name, _ in model.named_parameters()} - image_names


def test_an_adapter_changes_only_the_text_model(named_model):
    policy = load_named_policy(named_model, adapter=LoraAdapter(rank=2))
    adapted = {name for name, weight in policy.model.named_parameters() if weight.requires_grad}
    assert adapted
    assert not any(map(is_outside_text_model, adapted))


@pytest.mark.parametrize("kind", ["int8", pytest.param("nf4", marks=pytest.mark.nightly)])
def test_the_part_that_reads_images_is_not_quantised(named_model, kind):
    plain_policy, rounded_policy = (
        load_named_policy(named_model),
        load_named_policy(named_model, adapter=LoraAdapter(rank=2), quantization=kind),
    )
    beside_text = {
        name: weight
        for name, weight in rounded_policy.model.named_parameters()
        if is_outside_text_model(name)
    }
    assert beside_text.keys() == {
        name for name, _ in plain_policy.model.named_parameters() if is_outside_text_model(name)
    }
    assert all(
        weight.dtype == plain_policy.model.dtype and weight.is_floating_point()
        for weight in beside_text.values()
    )


def test_the_estimate_counts_the_loaded_weights(named_model):
    model, (_, shape) = load_named_policy(named_model).model, read_stored_shape(named_model)
    loaded_count = sum(weight.numel() for weight in model.parameters())
    trained_count = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    assert (shape.parameters, shape.parameters + shape.other_weights) == (trained_count, loaded_count)
    config = RunConfig(policy={"name": named_model[0], "dtype": "float32"})
    bytes_by_purpose = estimate_memory(config, shape, None, on_cpu=True).parts
    assert (bytes_by_purpose["weights"], bytes_by_purpose["optimizer"]) == (
        4 * loaded_count,
        8 * trained_count,
    )


def test_models_that_are_loaded_completely_match_transformers():
    kinds = {
        kind
        for kind, name in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items()
        if kind.startswith(("gemma", "qwen")) and "ConditionalGeneration" in name
    }
    assert kinds == FULLY_LOADED_MODEL_TYPES
