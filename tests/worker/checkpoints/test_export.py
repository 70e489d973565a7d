"""Tests of exports: a plain model that transformers opens, for every kind of checkpoint."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from backend.config.sections import PolicyConfig
from worker.checkpoints.export import export_checkpoint
from worker.checkpoints.files import BadCheckpoint, save_checkpoint
from worker.policy.adapter import adapter_weights, merged_copy
from worker.policy.model import load_policy

LORA_ADAPTER = {"type": "lora", "rank": 4}


def checkpoint(settings, directory, *, adapter=None, dtype="float32"):
    """Return a policy with slightly changed weights, and its checkpoint."""
    config = PolicyConfig.model_validate({"adapter": adapter or {"type": "none"}, "dtype": dtype})
    policy = load_policy(config, settings)
    weights = adapter_weights(policy.model) or dict(policy.model.named_parameters())
    generator = torch.Generator().manual_seed(1)
    for weight in weights.values():
        weight.data += 0.05 * torch.randn(weight.shape, generator=generator).to(weight.dtype)
    manifest_fields = {"config": {"policy": {"dtype": dtype}}}
    return policy, save_checkpoint(directory, policy, {}, step=3, lineage_fields=manifest_fields)


def logits(model):
    with torch.no_grad():
        return model(torch.tensor([[5, 6, 7, 8]])).logits.float()


@pytest.mark.parametrize("adapter", [None, LORA_ADAPTER])
def test_an_export_computes_the_same_as_the_policy(settings, tmp_path, adapter):
    policy, directory = checkpoint(settings, tmp_path / "c", adapter=adapter)
    export_checkpoint(directory, tmp_path / "out", card="# Card\n")
    exported_model = AutoModelForCausalLM.from_pretrained(tmp_path / "out", dtype="auto").eval()
    # A merged weight is rounded once more than base and adapter apart, and these logits reach 18.
    torch.testing.assert_close(logits(exported_model), logits(policy.model), rtol=2e-6, atol=1e-5)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "README.md",
    } <= names
    assert not {"trainer", "manifest.json", "adapter_config.json"} & names
    assert AutoTokenizer.from_pretrained(tmp_path / "out")("1+1=?") == policy.tokenizer("1+1=?")


@pytest.mark.parametrize("adapter", [None, LORA_ADAPTER])
def test_the_precision_can_be_chosen(settings, tmp_path, adapter):
    _, directory = checkpoint(settings, tmp_path / "c", adapter=adapter)
    export_checkpoint(directory, tmp_path / "out", dtype="bfloat16")
    weights = load_file(tmp_path / "out/model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}
    assert json.loads((tmp_path / "out/config.json").read_text())["dtype"] == "bfloat16"


def test_float32_holds_the_exact_sum_of_a_bfloat16_base_and_its_adapter(settings, tmp_path):
    policy, directory = checkpoint(settings, tmp_path / "c", adapter=LORA_ADAPTER, dtype="bfloat16")
    export_checkpoint(directory, tmp_path / "out", dtype="float32")
    exact_weights = merged_copy(policy.model.float()).state_dict()
    for name, weight in load_file(tmp_path / "out/model.safetensors").items():
        assert torch.equal(weight, exact_weights[name]), name


def test_a_failed_export_leaves_nothing_behind(settings, tmp_path):
    _, directory = checkpoint(settings, tmp_path / "c", adapter=LORA_ADAPTER)
    state = json.loads((directory / "trainer/state.json").read_text())
    (tmp_path / "there").mkdir()
    with pytest.raises(FileExistsError, match="exists already"):
        export_checkpoint(directory, tmp_path / "there")
    (directory / "trainer/state.json").write_text(json.dumps(state | {"base_sha256": "0" * 64}))
    with pytest.raises(BadCheckpoint, match="is damaged"):
        export_checkpoint(directory, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "there"]
