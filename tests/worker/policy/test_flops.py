"""Tests of the operation counts that are computed from weights, against torch's counter."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, MixtralConfig, Qwen3Config, Qwen3MoeConfig

from worker.policy.flops import ModelFlops

SMALL = {
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def tiny_qwen3(**changes):
    config = Qwen3Config(**SMALL, head_dim=8, **changes)
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()


def counted_flops(model, tokens):
    with FlopCounterMode(display=False) as counter:
        model(torch.zeros(1, tokens, dtype=torch.int64), use_cache=False)
    return counter.get_total_flops()


@pytest.mark.parametrize("is_tied", [True, False])
def test_a_forward_pass_matches_the_measured_operations(is_tied):
    model, token_count = tiny_qwen3(tie_word_embeddings=is_tied), 20
    flops = ModelFlops(model)
    causal = flops.per_pair * 2 * token_count * (token_count + 1) / 2
    # torch counts the half of the scores that causal attention masks
    assert flops.forward(
        [token_count]
    ) - causal + flops.per_pair * 2 * token_count * token_count == pytest.approx(
        counted_flops(model, token_count), rel=2e-3
    )


def test_learning_costs_three_forward_passes_or_two_if_nothing_below_trains():
    model = tiny_qwen3()
    assert ModelFlops(model).learn([8, 4]) == pytest.approx(3 * ModelFlops(model).forward([8, 4]))
    model.requires_grad_(requires_grad=False)
    frozen, weights = ModelFlops(model), ModelFlops(model).weights
    assert frozen.learn([8]) == pytest.approx(3 * frozen.forward([8]) - 2 * weights * 8)


def test_a_window_bounds_what_a_token_attends_to():
    model = tiny_qwen3(
        sliding_window=4, use_sliding_window=True, layer_types=["full_attention", "sliding_attention"]
    )
    flops = ModelFlops(model)
    pairs = 10 * 11 / 2 + (4 * 5 / 2 + 6 * 4)
    assert flops.forward([10]) == pytest.approx(2 * flops.weights * 10 + flops.per_pair * pairs)


@pytest.mark.parametrize("kind", [Qwen3MoeConfig, MixtralConfig])
def test_only_the_experts_that_read_a_token_count(kind):
    names = {"num_experts": 8} if kind is Qwen3MoeConfig else {"num_local_experts": 8}
    sizes = {"moe_intermediate_size": 48} if kind is Qwen3MoeConfig else {}
    few_experts, all_experts = (
        ModelFlops(AutoModelForCausalLM.from_config(kind(**SMALL, **sizes, **names, num_experts_per_tok=k)))
        for k in (2, 8)
    )
    one_expert = 3 * 32 * 48
    assert all_experts.weights - few_experts.weights == pytest.approx(2 * 6 * one_expert)
