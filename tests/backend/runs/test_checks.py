"""Tests of the checks of a run before it is queued."""

import json
from pathlib import Path

import pytest

from backend.base.errors import InvalidConfig
from backend.base.redaction import secret_errors
from backend.catalog.policies.offered import policy_errors, policy_offers
from backend.config.adapters import ContinuedAdapter
from backend.config.previews import previews
from backend.config.problems import SumsProblem
from backend.config.sections import PolicyConfig
from backend.runs.checks import resolve_runnable


@pytest.fixture
def model(settings):
    """A directory that looks like a model, from which a test can remove files."""
    directory = settings.models_dir / "mine"
    directory.mkdir(parents=True)
    (directory / "config.json").write_text('{"model_type": "qwen3"}')
    (directory / "model.safetensors").write_bytes(b"")
    (directory / "tokenizer.json").write_text("{}")
    return directory


BUILT_IN = ["tiny", "tiny_moe"]


def refusal_reason(settings, name="mine"):
    return "".join(error.message for error in policy_errors(PolicyConfig(name=name), settings))


def test_a_directory_with_config_weights_and_tokenizer_is_offered(settings, model):
    assert refusal_reason(settings) == ""
    assert [offer.name for offer in policy_offers(settings)] == [*BUILT_IN, "mine"]


@pytest.mark.parametrize(
    ("missing", "phrase"),
    [
        ("config.json", "config.json"),
        ("model.safetensors", "safetensors"),
        ("tokenizer.json", "no tokenizer"),
    ],
)
def test_a_directory_that_lacks_a_file_is_refused_by_name(settings, model, missing, phrase):
    (model / missing).unlink()
    assert phrase in refusal_reason(settings)
    assert "mine" in refusal_reason(settings)
    assert [offer.name for offer in policy_offers(settings)] == BUILT_IN


@pytest.mark.parametrize("config", ['{"auto_map": {"x": "y"}}', '{"text": {"trust_remote_code": true}}'])
def test_a_model_that_contains_code_is_refused(settings, model, config):
    (model / "config.json").write_text(config)
    assert "never run" in refusal_reason(settings)


@pytest.mark.parametrize("name", ["tokenizer_config.json", "generation_config.json", "processor_config.json"])
def test_code_hidden_in_another_file_is_refused(settings, model, name):
    (model / name).write_text('{"a": [{"b": {"auto_map": {"AutoTokenizer": ["x.y", null]}}}]}')
    assert f"its {name} requires custom code" in refusal_reason(settings)


@pytest.mark.parametrize("targets", [7, True, {"a": 1}, "(", ["q_proj", None, 2]])
def test_an_adapter_with_absurd_targets_is_refused_without_a_traceback(settings, model, targets):
    config = {"peft_type": "LORA", "base_model_name_or_path": "mine", "r": 8, "lora_alpha": 16}
    directory = model.with_name("adapter")
    directory.mkdir()
    (directory / "adapter_model.safetensors").write_bytes(b"")
    (directory / "adapter_config.json").write_text(json.dumps(config | {"target_modules": targets}))
    adapter = ContinuedAdapter(name="adapter")
    errors = policy_errors(PolicyConfig(name="mine", adapter=adapter), settings)
    assert all("no usable targets" in error.message for error in errors)


def test_a_link_that_leaves_models_dir_is_refused(settings, model, tmp_path):
    outside_directory = tmp_path / "outside"
    model.rename(outside_directory)
    model.symlink_to(outside_directory)
    assert "leads out of MODELS_DIR" in refusal_reason(settings)
    model.unlink()
    outside_directory.rename(model)
    (model / "model.safetensors").unlink()
    (model / "model.safetensors").symlink_to("/etc/passwd")
    assert "leads out of MODELS_DIR" in refusal_reason(settings)
    assert [offer.name for offer in policy_offers(settings)] == BUILT_IN


@pytest.mark.parametrize(
    "text", ["hf_" + "a" * 34, "x sk-" + "b" * 24, "postgresql://me:pw@host/db", "https://a:b@c"]
)
def test_text_that_looks_like_a_secret_is_detected_and_not_repeated(text):
    (error,) = secret_errors({"a": [{"b": text}]})
    assert error.path == "a.0.b"
    assert text not in error.message


def test_previewed_sums_match_the_ones_the_worker_trains_on():
    from worker.problems.sums import Sums

    source = SumsProblem(operands=4, low=1, high=50)
    worker = Sums(seed=7, operands=4, low=1, high=50)
    prompts = [example.prompt for example in previews([source], seed=7, datasets_dir=Path())]
    assert prompts == [worker.sample(index, "train").text for index in range(len(prompts))]
    assert len(prompts) == 3


@pytest.mark.parametrize(
    ("context", "completion"), [(128, 64), (512, 256), (1024, 512), (2047, 1023), (2048, 1024), (32768, 1024)]
)
def test_an_offered_profile_is_accepted_unchanged(settings, model, context, completion):
    (model / "config.json").write_text(
        json.dumps({"model_type": "gemma3", "text_config": {"max_position_embeddings": context}})
    )
    offer = next(offer for offer in policy_offers(settings) if offer.name == "mine")
    assert offer.profile["sampling"]["max_new_tokens"] == completion
    by_name = resolve_runnable(settings, {"policy": {"name": "mine"}})
    assert by_name.sampling.max_new_tokens == completion
    assert (
        resolve_runnable(settings, {"policy": {"name": "mine"}, **without_policy(offer.profile)}) == by_name
    )


def without_policy(profile):
    return {key: setting for key, setting in profile.items() if key != "policy"}


def test_sampling_servers_must_exist_and_return_log_probabilities(settings):
    def find_errors(settings, **sampling):
        try:
            resolve_runnable(settings, {"sampling": {"engine": {"type": "server"}, **sampling}})
        except InvalidConfig as refusal:
            return {error.path: error.message for error in refusal.errors}
        return {}

    assert find_errors(settings) == {
        "sampling.engine.type": "is server, but ENGINE_URL is not set: see docs/engines.md"
    }
    raw = settings.model_copy(update={"engine_url": "http://127.0.0.1:8000,http://127.0.0.1:8001/v1"})
    assert raw.engine_urls == ["http://127.0.0.1:8000", "http://127.0.0.1:8001"]
    assert find_errors(raw) == {}
    errors = find_errors(raw, temperature=0.8, top_p=0.9, top_k=20)
    assert sorted(errors) == ["sampling.temperature", "sampling.top_k", "sampling.top_p"]
    assert errors["sampling.temperature"].startswith(
        "is 0.8, but the servers send log-probabilities from before"
    )
    processed = raw.model_copy(update={"engine_logprobs": "processed"})
    assert find_errors(processed, temperature=0.8, top_p=0.9) == {}


def test_sampling_next_to_the_trainer_needs_the_operators_settings(settings):
    colocated_config = {"sampling": {"engine": {"type": "colocated"}, "temperature": 0.8, "top_p": 0.9}}
    with pytest.raises(InvalidConfig) as error_info:
        resolve_runnable(settings, colocated_config)
    assert [(error.path, error.message) for error in error_info.value.errors] == [
        ("sampling.engine.type", "is colocated, but ENGINE_PYTHON is not set: see docs/engines.md")
    ]
    configured = settings.model_copy(update={"engine_python": "/opt/vllm/bin/python"})
    assert resolve_runnable(configured, colocated_config).sampling.engine.memory_share == 0.4


def test_an_environment_needs_a_server_of_that_name(settings):
    config = {
        "environment": {"type": "openenv", "server": "guess"},
        "problems": [{"name": "episodes", "instruction": "Guess."}],
        "rewards": [{"name": "environment"}],
    }
    with pytest.raises(InvalidConfig) as error_info:
        resolve_runnable(settings, config)
    [error] = error_info.value.errors
    assert (error.path, error.message) == (
        "environment.server",
        "is guess, but OPENENV_URLS is not set: see docs/environments.md",
    )
    other_settings = settings.model_copy(update={"openenv_urls": "maze=http://a:8000"})
    with pytest.raises(InvalidConfig, match="OPENENV_URLS names maze"):
        resolve_runnable(other_settings, config)
    settings_with_server = settings.model_copy(update={"openenv_urls": "guess=http://a:8000"})
    assert resolve_runnable(settings_with_server, config).environment.server == "guess"
