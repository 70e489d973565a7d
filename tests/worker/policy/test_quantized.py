"""Tests of base weights in 8 and 4 bits: rounding, gradients, memory, and a run on top of them."""

import pytest
import torch
from torch import nn

from backend.base.errors import InvalidConfig
from backend.config.merge import resolve
from backend.config.sections import PolicyConfig
from tests.worker.policy.saved_bytes import saved_bytes
from worker.checkpoints.files import load_checkpoint, save_checkpoint
from worker.policy.adapter import adapter_weights, merged_copy
from worker.policy.lean import is_lean
from worker.policy.logprobs import token_logprobs
from worker.policy.model import load_policy
from worker.policy.quantized import NF4, NF4Linear, RoundedScales
from worker.policy.token_batch import token_batch
from worker.training.reference import reference_for

LORA = {"type": "lora", "rank": 4}


def batch():
    return token_batch([[5, 6, 7], [5, 6]], [[8, 9, 1], [8, 10]], pad_id=0)


def logprobs(model):
    return token_logprobs(model, batch(), temperature=1.0).logprobs


def load(settings, **fields):
    torch.manual_seed(0)
    policy = load_policy(PolicyConfig(adapter=LORA, **fields), settings)
    for name, weight in adapter_weights(policy.model).items():
        if "lora_B" in name:
            weight.data += 0.05 * torch.randn(weight.shape)
    return policy


def count_bytes(weight):
    """Return the bytes of a weight. torchao's tensors report the sizes of the tensors they replace."""
    return weight.qdata.nbytes + weight.scale.nbytes if hasattr(weight, "qdata") else weight.nbytes


def test_weights_are_rounded_to_the_nearest_level_of_their_block():
    layer = nn.Linear(64, 2, bias=False)
    with torch.no_grad():
        # exact, because it is on the grid
        layer.weight[0] = torch.tensor([NF4[i % 16] * 3 for i in range(64)])
        layer.weight[1] = torch.tensor([0.5, -0.11] + [1.0] * 62)
    quantized_layer = NF4Linear(layer)
    torch.testing.assert_close(quantized_layer.weight[0], layer.weight[0], rtol=0, atol=1e-6)
    assert quantized_layer.weight[1, :3].tolist() == pytest.approx(
        [NF4[12], NF4[6], 1.0]
    )  # 0.44 is closer than 0.56
    assert sum(parameter.nbytes for parameter in quantized_layer.parameters()) == 2 * 64 * 4.5 / 8
    zeros = nn.Linear(64, 1, bias=False)
    nn.init.zeros_(zeros.weight)
    assert NF4Linear(zeros).weight.abs().max() == 0


def test_double_quantisation_rounds_the_scales_to_254_steps_around_their_mean():
    scales = torch.cat([torch.tensor([1.0, 3.0]), torch.full((254,), 2.0), torch.tensor([1.5])])
    rounded = RoundedScales(scales)
    assert rounded.codes[:3].tolist() == [-127, 127, 0]  # the mean is 2 - 0.5 / 257
    assert len(rounded.steps) == 2
    assert float(rounded.mean) == pytest.approx(2 - 0.5 / 257)
    assert (rounded() - scales).abs().max() <= rounded.steps.max() / 2 + 1e-6
    assert rounded().min() >= 1


def test_a_layer_has_the_gradient_of_its_dequantised_weight_and_saves_nothing():
    torch.manual_seed(0)
    quantized_layer = NF4Linear(nn.Linear(128, 64))
    hidden_states = torch.randn(8, 128, requires_grad=True)
    output, saved_size = saved_bytes(quantized_layer, lambda: quantized_layer(hidden_states))
    assert saved_size == 0
    output.square().sum().backward()
    gradient, hidden_states.grad = hidden_states.grad, None
    nn.functional.linear(
        hidden_states, quantized_layer.weight, quantized_layer.bias
    ).square().sum().backward()
    torch.testing.assert_close(gradient, hidden_states.grad)


@pytest.mark.parametrize("path", ["tree_states", "row_states"])
@pytest.mark.parametrize(("kind", "share"), [("int8", 0.27), ("nf4", 0.15), ("nf4_double", 0.14)])
def test_a_policy_with_rounded_weights_learns_through_them(settings, monkeypatch, kind, share, path):
    monkeypatch.setattr("worker.policy.logprobs.suits_tree", lambda *_: path == "tree_states")
    policy, exact_policy = load(settings, quantization=kind), load(settings)
    assert is_lean(policy.model)
    mean_deviation = (logprobs(policy.model) - logprobs(exact_policy.model)).abs().mean()
    assert 0 < mean_deviation < (0.1 if kind == "int8" else 1.0)
    torch.testing.assert_close(logprobs(policy.model), logprobs(merged_copy(policy.model)), rtol=0, atol=1e-3)
    logprobs(policy.model).sum().backward()
    assert all(weight.grad.abs().sum() > 0 for weight in adapter_weights(policy.model).values())
    sizes = [
        sum(
            count_bytes(weight)
            for name, weight in quantized.model.named_parameters()
            if "layers" in name and "lora" not in name
        )
        for quantized in (policy, exact_policy)
    ]
    assert sizes[0] < share * sizes[1]


@pytest.mark.parametrize("kind", ["int8", "nf4", "nf4_double"])
def test_the_reference_and_a_checkpoint_share_the_rounded_base(settings, tmp_path, kind):
    policy = load(settings, quantization=kind)
    reference = reference_for(policy, resolve({"preset": "grpo", "policy": {"adapter": LORA}}))
    weight_ids = {id(weight) for weight in policy.model.parameters()}
    assert all(id(weight) in weight_ids for weight in reference.model.parameters())
    directory = save_checkpoint(tmp_path / "c", policy, {}, step=1)
    restored_policy = load(settings, quantization=kind)
    for weight in adapter_weights(restored_policy.model).values():
        weight.data.zero_()
    load_checkpoint(directory, restored_policy, {})
    assert torch.equal(logprobs(restored_policy.model), logprobs(policy.model))
    assert policy.base_sha256 == load(settings).base_sha256  # of the weights before rounding


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        (
            {"policy": {"quantization": "nf4"}},
            "policy.quantization: is nf4, but rounded weights cannot train",
        ),
        (
            {"policy": {"quantization": "int8", "adapter": LORA}, "sampling": {"precision": "int8"}},
            "sampling.precision: is int8, but policy.quantization int8 already rounds",
        ),
        (
            {"resources": {"activation_checkpointing": True}, "sampling": {"routing_replay": True}},
            "without the repl",
        ),
        (
            {"policy": {"adapter": LORA}, "resources": {"offload_reference": True}},
            "shares the policy's weights",
        ),
        (
            {"policy": {"adapter": LORA}, "objective": {"reference": {"type": "ema"}}},
            "the mean of two adapters",
        ),
    ],
)
def test_incompatible_settings_are_refused_in_one_sentence(changes, field):
    with pytest.raises(InvalidConfig, match=field.replace(".", r"\.")):
        resolve(changes)
