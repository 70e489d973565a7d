"""Tests of the memory estimate, part by part against sums by hand, and of the effect of each measure."""

import pytest

from backend.catalog.policies.fitting import fitting_changes
from backend.catalog.policies.memory import (
    ASSUMED_PROMPT_TOKENS,
    CONTEXT_BYTES,
    estimate_memory,
    estimate_phases,
)
from backend.catalog.policies.model_shape import ModelShape, UnknownShape
from backend.catalog.policies.weight_files import Weight
from backend.config.adapters import LoraAdapter
from backend.config.merge import resolve

HIDDEN, INNER, VOCABULARY, LAYERS = 2048, 8192, 100_000, 4
LINEAR_SHAPES = {
    "self_attn.q_proj": (2048, 2048),
    "self_attn.k_proj": (512, 2048),
    "self_attn.v_proj": (512, 2048),
    "self_attn.o_proj": (2048, 2048),
    "mlp.gate_proj": (INNER, HIDDEN),
    "mlp.up_proj": (INNER, HIDDEN),
    "mlp.down_proj": (HIDDEN, INNER),
}
CONFIG = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
WEIGHTS = [
    Weight("model.embed_tokens.weight", (VOCABULARY, HIDDEN)),
    Weight("model.norm.weight", (HIDDEN,)),
    Weight("lm_head.weight", (VOCABULARY, HIDDEN)),
    *(
        Weight(f"model.layers.{n}.{name}.weight", shape)
        for n in range(LAYERS)
        for name, shape in LINEAR_SHAPES.items()
    ),
    *(Weight(f"model.layers.{n}.input_layernorm.weight", (HIDDEN,)) for n in range(LAYERS)),
]
SHAPE = ModelShape.from_config(CONFIG, WEIGHTS)
VALUE_COUNT = (
    VOCABULARY * HIDDEN + HIDDEN + LAYERS * (2 * 2048**2 + 2 * 512 * 2048 + 3 * INNER * HIDDEN + HIDDEN)
)


def run(**changes):
    base = {
        "policy": {"name": "a/model"},
        "sampling": {"prompts_per_step": 8, "group_size": 8, "max_new_tokens": 1024},
    }
    return resolve(base, changes, 0)


def memory(config, *, on_cpu=False):
    adapter = config.policy.adapter if isinstance(config.policy.adapter, LoraAdapter) else None
    return estimate_memory(config, SHAPE, adapter, on_cpu=on_cpu)


def learning(**changes):
    config = run(**changes)
    adapter = config.policy.adapter if isinstance(config.policy.adapter, LoraAdapter) else None
    return estimate_phases(config, SHAPE, adapter, on_cpu=False)[1].parts


def test_weights_optimizer_and_gradients_by_hand():
    bytes_by_purpose = learning()
    assert bytes_by_purpose["weights"] == 2 * VALUE_COUNT  # bfloat16; the tied output layer counts once
    assert bytes_by_purpose["optimizer"] == (4 + 8) * VALUE_COUNT
    assert bytes_by_purpose["gradients"] == 4 * VALUE_COUNT  # of all micro-batches except the last one
    assert bytes_by_purpose["context"] == CONTEXT_BYTES


def test_the_cache_of_a_group_by_hand():
    config = run()
    sampling = estimate_phases(config, SHAPE, None, on_cpu=False)[0]
    assert sampling.parts["cache"] == 8 * LAYERS * 2 * 4 * 128 * 2 * (ASSUMED_PROMPT_TOKENS + 1024)
    assert sampling.parts["logits"] == 8 * VOCABULARY * 32


@pytest.mark.parametrize(
    "changes",
    [
        {"resources": {"activation_checkpointing": True}},
        {"resources": {"microbatch_tokens": 2560}},
        {"resources": {"offload_optimizer": True}},
        {"resources": {"microbatch_completions": 1}},
        {"optimizer": {"moments": "int8"}},
        {"policy": {"adapter": {"type": "lora"}}},
    ],
)
def test_each_measure_lowers_the_peak(changes):
    assert memory(run(**changes)).peak < 0.95 * memory(run()).peak


@pytest.mark.parametrize("gigabytes", [1000, 40, 24, 12, 6, 4, 1])
def test_suggested_changes_make_a_config_fit_and_each_one_helps(gigabytes):
    config, capacity = run(), gigabytes * 1e9
    peak = lambda changed: memory(changed).peak  # noqa: E731
    changes = fitting_changes(config, peak, capacity, row_tokens=ASSUMED_PROMPT_TOKENS + 1024)
    if changes is None:
        assert gigabytes == 1
        return
    assert sum(change.saves_bytes for change in changes) >= peak(config) - capacity
    assert (changes == []) == (peak(config) <= capacity)
    assert all(change.saves_bytes > 0 for change in changes)


@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize(
    "kind", ["llama", "gpt_oss", "qwen3_next", "falcon_h1", "lfm2", "deepseek_v3", "x" * 99]
)
def test_unknown_weight_names_still_give_an_estimate(kind, on_cpu):
    unknown_names = [
        ".linear_attn.a",
        ".mamba.b",
        ".conv.conv",
        ".self_attn.q_proj",
        ".mlp.experts.w",
        ".q_norm",
    ]
    weights = [Weight(f"m.layers.{n}{name}.weight", (1,) * n) for n in range(8) for name in unknown_names]
    config = CONFIG | {"model_type": kind, "layer_types": ["sliding_attention", 7, None], "kv_lora_rank": 3}
    estimate = estimate_memory(
        run(policy={"dtype": "float32"}), ModelShape.from_config(config, weights), None, on_cpu=on_cpu
    )
    assert 0 < estimate.peak < 1e15


def test_a_model_stored_quantised_or_without_sizes_is_unknown():
    with pytest.raises(UnknownShape, match="quantised"):
        ModelShape.from_config(CONFIG | {"quantization_config": {"bits": 4}}, WEIGHTS)
    for name in ("hidden_size", "num_attention_heads", "vocab_size"):
        for size in (None, "many", -1, True, 2**70):
            with pytest.raises(UnknownShape, match=name):
                ModelShape.from_config(CONFIG | {name: size}, WEIGHTS)
    with pytest.raises(UnknownShape, match="no layers"):
        ModelShape.from_config(CONFIG, WEIGHTS[:3])


def test_more_layers_and_weights_than_any_model_has_are_not_estimated():
    layers = [Weight(f"model.layers.{n}.mlp.up_proj.weight", (INNER, HIDDEN)) for n in range(1_001)]
    too_many_weights = [Weight(f"model.layers.0.x{n}.weight", (2, 2)) for n in range(20_001)]
    for weights in (layers, too_many_weights):
        with pytest.raises(UnknownShape, match="at most 1,000 and 20,000 are estimated"):
            ModelShape.from_config(CONFIG, weights)
