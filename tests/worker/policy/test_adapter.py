"""Tests of LoRA adapters: exact sampling and scoring, the base as reference, checkpoints and refusals."""

import json
import shutil

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GPTNeoXConfig

from backend.base.errors import InvalidConfig
from backend.catalog.policies.offered import policy_errors
from backend.config.adapters import LoraAdapter
from backend.config.merge import resolve
from backend.config.sections import OptimizerConfig, PolicyConfig
from tests.models.architectures import build
from worker.checkpoints.files import BadCheckpoint, load_checkpoint, load_weights, save_checkpoint
from worker.policy.adapter import (
    adapter_weights,
    add_adapter,
    base_model,
    is_lora_experts,
    merged_copy,
    target_modules,
)
from worker.policy.logprobs import token_logprobs
from worker.policy.model import BUILT_IN, load_policy
from worker.policy.optimizer import PolicyOptimizer
from worker.policy.token_batch import token_batch
from worker.problems.sums import Sums
from worker.rollout.sampler import Decoding, Sampler
from worker.training.reference import reference_for

LORA = {"type": "lora", "rank": 4, "alpha": 8}
PROMPTS = [[5, 6, 7], [5, 6], [9, 9, 9]]
COMPLETIONS = [[8, 9, 1], [8, 10], [11, 12, 13, 14]]


def batch():
    return token_batch(PROMPTS, COMPLETIONS, pad_id=0)


def logprobs(model):
    return token_logprobs(model, batch(), temperature=1.0).logprobs


def logprobs_by_single_forwards(model):
    """Return the log-probabilities of one forward per completion, without tree, padding or chunks."""
    by_token = torch.zeros(3, 4)
    for row, (prompt, completion) in enumerate(zip(PROMPTS, COMPLETIONS, strict=True)):
        logits = model(torch.tensor([prompt + completion])).logits[0].float().log_softmax(dim=-1)
        for token, target in enumerate(completion):
            by_token[row, token] = logits[len(prompt) + token - 1, target]
    return by_token


def with_nonzero_adapter(policy, size=0.05):
    """Return the policy with an adapter that changes its output."""
    generator = torch.Generator().manual_seed(1)
    for name, weight in adapter_weights(policy.model).items():
        if "lora_B" in name:
            weight.data += size * torch.randn(weight.shape, generator=generator)
    return policy


@pytest.fixture
def load(settings):
    def load(adapter=LORA, **policy):
        torch.manual_seed(0)
        return load_policy(PolicyConfig(adapter=adapter, **policy), settings)

    return load


@pytest.mark.parametrize("policy", ["tiny", "tiny_moe"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_learner_and_sampler_agree_with_a_plain_forward(load, policy, dtype):
    adapted = with_nonzero_adapter(load(name=policy, dtype=dtype))
    bound = 1e-4 if dtype == "float32" else 0.25
    torch.testing.assert_close(
        logprobs(adapted.model), logprobs_by_single_forwards(adapted.model), rtol=0, atol=bound
    )
    prompts = [Sums(seed=1).sample(cursor, "train") for cursor in range(2)]
    groups = Sampler(adapted).sample(prompts, 3, Decoding(12), torch.Generator().manual_seed(2))
    ids = [adapted.encode(prompt.text, room=12) for prompt in prompts]
    for prompt, group in zip(ids, groups, strict=True):
        for completion in group:
            single_batch = token_batch([prompt], [completion.ids.tolist()], pad_id=0)
            scored_logprobs = token_logprobs(adapted.model, single_batch, temperature=1.0).logprobs[0]
            sampler_logprobs = torch.as_tensor(completion.sampler_logprobs)
            torch.testing.assert_close(scored_logprobs.detach(), sampler_logprobs, rtol=0, atol=bound)


def test_only_the_adapter_trains_and_a_fresh_one_changes_nothing(load):
    adapted, base = load(), load({"type": "none"})
    trained_names = {name for name, weight in adapted.model.named_parameters() if weight.requires_grad}
    assert trained_names
    assert all("lora_" in name for name in trained_names)
    # 4 layers x (q 128+128, k and v 128+64, o 128+128, gate, up and down 128+384) x rank 4
    assert sum(weight.numel() for weight in adapter_weights(adapted.model).values()) == 38_912
    torch.testing.assert_close(logprobs(adapted.model), logprobs(base.model), rtol=0, atol=1e-5)


def test_the_reference_is_the_base_without_a_copy(load):
    adapted, base = with_nonzero_adapter(load()), load({"type": "none"})
    config = resolve({"preset": "grpo", "policy": {"adapter": LORA}})
    reference = reference_for(adapted, config)
    assert torch.equal(logprobs(reference.model), logprobs(base.model))
    base_weights = {weight.data_ptr() for weight in adapted.model.parameters()}
    assert {weight.data_ptr() for weight in reference.model.parameters()} < base_weights
    assert reference_for(adapted, resolve({"preset": "grpo_book_clip"})) is None


def test_a_checkpoint_holds_the_adapter_and_opens_with_transformers(load, tmp_path):
    adapted = with_nonzero_adapter(load())
    directory = save_checkpoint(tmp_path / "c", adapted, {}, step=3)
    assert not (directory / "model.safetensors").exists()
    assert json.loads((directory / "adapter_config.json").read_text())["r"] == 4
    opened_model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
    torch.testing.assert_close(
        logprobs_by_single_forwards(opened_model),
        logprobs_by_single_forwards(adapted.model),
        rtol=0,
        atol=1e-6,
    )
    restored_policy = load()
    load_checkpoint(directory, restored_policy, {})
    assert torch.equal(logprobs(restored_policy.model), logprobs(adapted.model))


def test_a_checkpoint_refuses_another_base_and_another_rank(load, settings, tmp_path):
    local = settings.models_dir / "mine"
    shutil.copytree(BUILT_IN["tiny"], local)
    directory = save_checkpoint(tmp_path / "c", with_nonzero_adapter(load(name="mine")), {}, step=3)
    with pytest.raises(BadCheckpoint, match=r"has shape \[4, .*expects \[8, "):
        load_checkpoint(directory, load(LORA | {"rank": 8}, name="mine"), {})
    with pytest.raises(BadCheckpoint, match="for other layers"):
        load_checkpoint(directory, load(LORA | {"targets": "attention"}, name="mine"), {})
    weights = load_file(local / "model.safetensors")
    first = next(iter(weights))
    save_file(weights | {first: weights[first] + 0.01}, local / "model.safetensors", {"format": "pt"})
    with pytest.raises(BadCheckpoint, match="belongs to a base with SHA-256"):
        load_checkpoint(directory, load(name="mine"), {})


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (("all_linear",), {"query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"}),
        (("attention",), {"query_key_value", "dense"}),
        (("dense_h_to_4h",), {"dense_h_to_4h"}),
        (("0.attention.dense",), {"gpt_neox.layers.0.attention.dense"}),
    ],
)
def test_targets_select_layers_of_any_architecture(targets, expected):
    config = GPTNeoXConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    assert set(target_modules(AutoModelForCausalLM.from_config(config), targets)) == expected


@pytest.fixture
def stored_adapter(load, settings, tmp_path):
    """An adapter directory in MODELS_DIR, and a function that changes its adapter_config.json."""
    target = settings.models_dir / "before"
    shutil.copytree(save_checkpoint(tmp_path / "c", with_nonzero_adapter(load()), {}, step=3), target)

    def change(**fields):
        path = target / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))
        return target

    return change


CONTINUED_ADAPTER = {"type": "continued", "name": "before"}


def test_a_continued_adapter_starts_from_its_state_which_is_the_reference(load, stored_adapter):
    stored_adapter()
    policy = load(CONTINUED_ADAPTER)
    assert torch.equal(logprobs(policy.model), logprobs(with_nonzero_adapter(load()).model))
    config = resolve({"preset": "grpo", "policy": {"adapter": CONTINUED_ADAPTER}})
    assert torch.equal(logprobs(reference_for(policy, config).model), logprobs(policy.model))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"base_model_name_or_path": "Qwen/Qwen3-8B"},
            "is an adapter for 'Qwen/Qwen3-8B', not for the policy 'tiny'",
        ),
        ({"base_model_name_or_path": None}, "is an adapter for ''"),
        ({"peft_type": "IA3"}, "of type 'IA3'; expected LORA"),
        ({"use_dora": True}, "uses use_dora, which is not supported"),
        ({"modules_to_save": ["lm_head"]}, "uses modules_to_save"),
        ({"rank_pattern": {"q_proj": 64}}, "uses rank_pattern"),
        ({"target_modules": "(a+)+$"}, "no usable targets"),
        ({"target_modules": ["-" * 20]}, "no usable targets"),
        ({"r": 10**9}, "no usable rank"),
        ({"lora_alpha": "nan"}, "no usable alpha"),
    ],
)
def test_an_adapter_for_another_model_or_of_another_kind_is_refused(
    load, settings, stored_adapter, fields, reason
):
    stored_adapter(**fields)
    [error] = policy_errors(PolicyConfig(adapter=CONTINUED_ADAPTER), settings)
    assert error.path == "policy.adapter.name"
    assert reason in error.message
    with pytest.raises(InvalidConfig) as error_info:
        load(CONTINUED_ADAPTER)
    assert reason in str(error_info.value.errors)


@pytest.mark.parametrize("name", ["adapter_config.json", "adapter_model.safetensors"])
def test_a_model_next_to_an_adapter_is_neither_policy_nor_checkpoint(
    load, stored_adapter, settings, tmp_path, name
):
    """from_pretrained would load the adapter of such a directory, regardless of the config."""
    mixed_directory = settings.models_dir / "mixed"
    shutil.copytree(save_checkpoint(tmp_path / "whole", load({"type": "none"}), {}, step=3), mixed_directory)
    assert policy_errors(PolicyConfig(name="mixed"), settings) == []
    shutil.copy(stored_adapter() / name, mixed_directory / name)
    [error] = policy_errors(PolicyConfig(name="mixed"), settings)
    assert error.path == "policy.name"
    assert f"holds an adapter ({name}) beside the model" in error.message
    with pytest.raises(InvalidConfig, match="beside the model"):
        load_policy(PolicyConfig(name="mixed"), settings)
    if name == "adapter_config.json":
        with pytest.raises(BadCheckpoint, match="it holds an adapter"):
            load_weights(mixed_directory, load({"type": "none"}))


def test_an_adapter_learns_what_is_rewarded(load):
    adapted = load()
    optimizer = PolicyOptimizer(adapted.model, OptimizerConfig(lr=1e-2), steps=20)
    base = {name: weight.clone() for name, weight in base_model(adapted.model).named_parameters()}
    logprob_before = logprobs(adapted.model).sum().item()
    for step in range(1, 21):
        (-logprobs(adapted.model).sum()).backward()
        optimizer.step(step)
    assert logprobs(adapted.model).sum().item() > logprob_before / 2
    current_weights = dict(base_model(adapted.model).named_parameters())
    assert all(torch.equal(current_weights[name], weight) for name, weight in base.items())
    assert all("lora_" in name for name in optimizer.tensors())


EXPERT_ADAPTER = LORA | {"targets": "all_linear,experts"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_experts_can_be_adapted_sampled_and_merged(load, dtype):
    adapted, base = (
        with_nonzero_adapter(load(EXPERT_ADAPTER, name="tiny_moe", dtype=dtype)),
        load({"type": "none"}, name="tiny_moe"),
    )
    bound = 1e-4 if dtype == "float32" else 0.25
    torch.testing.assert_close(
        logprobs(adapted.model), logprobs_by_single_forwards(adapted.model), rtol=0, atol=bound
    )
    torch.testing.assert_close(
        logprobs(merged_copy(adapted.model)), logprobs(adapted.model), rtol=0, atol=bound
    )
    base_logprobs = logprobs(base_model(adapted.model))
    torch.testing.assert_close(base_logprobs, logprobs(base.model), rtol=0, atol=bound)
    assert (base_logprobs - logprobs(adapted.model)).abs().max() > 0.05
    logprobs(adapted.model).sum().backward()
    trained_names = {name for name, weight in adapted.model.named_parameters() if weight.grad is not None}
    assert {name.split(".")[-4] for name in trained_names if ".mlp." in name} == {"experts", "base_layer"}
    assert all("lora_" in name for name in trained_names)


@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss", "qwen3_next", "deepseek_v3", "granite4"])
def test_the_adapter_of_experts_is_the_product_of_its_factors(name):
    """This holds for gate_up and down of each expert, regardless of how its architecture stores them."""
    model = build(name)
    add_adapter(model, LoraAdapter(rank=2, alpha=4, targets="experts"), base=name)
    torch.manual_seed(1)
    layer = next(module for module in model.modules() if is_lora_experts(module))
    base_weights = {key: weight.clone() for key, weight in layer.get_base_layer().named_parameters()}
    for weight in adapter_weights(model).values():
        weight.data = 0.1 * torch.randn_like(weight)
    merged_experts = next(
        module for module in merged_copy(model).modules() if hasattr(module, "gate_up_proj")
    )
    for wrapper in (layer, layer.base_layer):
        weight_change = getattr(merged_experts, wrapper.parameter_name) - base_weights[wrapper.parameter_name]
        first, second = wrapper.lora_A["default"].weight, wrapper.lora_B["default"].weight
        experts = len(weight_change)
        for expert in range(experts):
            factor = second.view(len(second), 2, experts)[:, :, expert]  # peft: (outputs, rank, experts)
            product = 2 * factor @ first.view(experts, 2, -1)[expert]
            product = product if product.shape == weight_change[expert].shape else product.T
            torch.testing.assert_close(weight_change[expert], product, rtol=1e-4, atol=1e-5)
    ids = torch.arange(1, 9)[None]
    logits, expected = (network(ids, use_cache=False).logits for network in (model, merged_copy(model)))
    torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
def test_peft_opens_a_checkpoint_of_adapted_experts_and_it_can_be_continued(load, settings, tmp_path):
    adapted = with_nonzero_adapter(load(EXPERT_ADAPTER, name="tiny_moe"))
    directory = save_checkpoint(tmp_path / "c", adapted, {}, step=1)
    restored_policy = load(EXPERT_ADAPTER, name="tiny_moe")
    load_checkpoint(directory, restored_policy, {})
    assert torch.equal(logprobs(restored_policy.model), logprobs(adapted.model))
    opened_model = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(BUILT_IN["tiny_moe"], dtype=torch.float32), directory
    ).eval()
    torch.testing.assert_close(
        logprobs_by_single_forwards(opened_model),
        logprobs_by_single_forwards(adapted.model),
        rtol=0,
        atol=1e-4,
    )
    renamed = settings.models_dir / "experts"
    shutil.copytree(directory, renamed, ignore=shutil.ignore_patterns("trainer"))
    continued_policy = load({"type": "continued", "name": "experts"}, name="tiny_moe")
    torch.testing.assert_close(logprobs(continued_policy.model), logprobs(adapted.model), rtol=0, atol=1e-5)
