"""Memory by part against sums by hand, and what each measure changes."""

import pytest

from backend.catalog.policies.fitting import changes_that_fit
from backend.catalog.policies.memory import CHUNK_ELEMENTS, CONTEXT_BYTES, PROMPT_TOKENS, memory_of, phases_of
from backend.catalog.policies.model_shape import ModelShape, UnknownShape
from backend.catalog.policies.weight_files import Weight
from backend.config.adapters import LoraAdapter
from backend.config.merge import resolve
from worker.policy import logprobs

HIDDEN, INNER, VOCABULARY, LAYERS = 2048, 8192, 100_000, 4
LINEAR = {
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
        for name, shape in LINEAR.items()
    ),
    *(Weight(f"model.layers.{n}.input_layernorm.weight", (HIDDEN,)) for n in range(LAYERS)),
]
SHAPE = ModelShape.of(CONFIG, WEIGHTS)
VALUES = VOCABULARY * HIDDEN + HIDDEN + LAYERS * (2 * 2048**2 + 2 * 512 * 2048 + 3 * INNER * HIDDEN + HIDDEN)
LORA_VALUES = LAYERS * 32 * (2 * (2048 + 2048) + 2 * (512 + 2048) + 3 * (INNER + HIDDEN))


def run(**changes):
    base = {
        "policy": {"name": "a/model"},
        "sampling": {"prompts_per_step": 8, "group_size": 8, "max_new_tokens": 1024},
    }
    return resolve(base, changes, 0)


def memory(config, *, on_cpu=False):
    adapter = config.policy.adapter if isinstance(config.policy.adapter, LoraAdapter) else None
    return memory_of(config, SHAPE, adapter, on_cpu=on_cpu)


def learning(**changes):
    config = run(**changes)
    adapter = config.policy.adapter if isinstance(config.policy.adapter, LoraAdapter) else None
    return phases_of(config, SHAPE, adapter, on_cpu=False)[1].parts


def test_weights_optimizer_and_gradients_by_hand():
    parts = learning()
    assert parts["weights"] == 2 * VALUES  # bfloat16; the tied output layer counts once
    assert parts["optimizer"] == (4 + 8) * VALUES
    assert parts["gradients"] == 4 * VALUES  # of the micro-batches before the last one
    assert parts["context"] == CONTEXT_BYTES


def test_gradients_of_embeddings_wait_for_each_other_at_the_end_of_a_backward_pass():
    config = run(
        policy={"dtype": "float32"},
        resources={"microbatch_completions": 1, "activation_checkpointing": True},
        sampling={"max_new_tokens": 1},
    )
    untied = ModelShape.of({**CONFIG, "tie_word_embeddings": False}, WEIGHTS)
    gradient_values = VOCABULARY * HIDDEN  # values of one gradient
    tied_end, untied_end = (
        phases_of(config, shape, None, on_cpu=False, prompt_tokens=2)[1].parts["gradients"]
        for shape in (SHAPE, untied)
    )
    assert tied_end == 4 * (VALUES + 2 * gradient_values)  # of this pass, beside those of the passes before
    assert untied_end == 4 * (VALUES + gradient_values + gradient_values)


def test_an_adapter_has_gradients_and_moments_of_its_own_alone():
    parts = learning(policy={"adapter": {"type": "lora"}})
    assert parts["adapter"] == 4 * LORA_VALUES
    assert parts["optimizer"] == 8 * LORA_VALUES
    assert "reference" not in parts


def test_a_quantised_base_has_four_and_a_half_bits_per_linear_weight():
    linear = LAYERS * (2 * 2048**2 + 2 * 512 * 2048 + 3 * INNER * HIDDEN)
    parts = learning(policy={"adapter": {"type": "lora"}, "quantization": "nf4"})
    assert parts["weights"] == pytest.approx(2 * (VALUES - linear) + linear * 4.5 / 8)


def test_double_quantisation_takes_an_eighth_of_a_bit_for_scales():
    linear = LAYERS * (2 * 2048**2 + 2 * 512 * 2048 + 3 * INNER * HIDDEN)
    parts = learning(policy={"adapter": {"type": "lora"}, "quantization": "nf4_double"})
    bits = 4 + 8 / 64 + 32 / (64 * 256)
    assert parts["weights"] == pytest.approx(2 * (VALUES - linear) + linear * bits / 8)


@pytest.mark.parametrize(("moments", "bytes_each"), [("float32", 8), ("int8", 2 + 8 / 256)])
def test_paged_moments_are_counted_on_the_host(moments, bytes_each):
    config = run(optimizer={"paged": True, "moments": moments})
    update_phase = phases_of(config, SHAPE, None, on_cpu=False)[1]
    small = HIDDEN * (LAYERS + 1)  # norms: their moments are no pages
    assert update_phase.parts["optimizer"] == pytest.approx(
        4 * VALUES + small * (8 if HIDDEN < 4096 else bytes_each)
    )
    assert update_phase.host_bytes - memory(run()).host_bytes == pytest.approx((VALUES - small) * bytes_each)


def test_packed_rows_keep_no_masks_on_a_gpu_and_all_pairs_on_a_cpu():
    shape = ModelShape.of({**CONFIG, "sliding_window": 128}, WEIGHTS)

    def activation_bytes(packing, *, on_cpu):
        config = run(resources={"packing": packing, "microbatch_completions": 4})
        return phases_of(config, shape, None, on_cpu=on_cpu)[1].parts["activations"]

    assert (
        activation_bytes("auto", on_cpu=False)
        == activation_bytes("on", on_cpu=False)
        < activation_bytes("off", on_cpu=False)
    )
    assert (
        activation_bytes("auto", on_cpu=True)
        == activation_bytes("off", on_cpu=True)
        < activation_bytes("on", on_cpu=True)
    )


def test_logits_are_bounded_by_the_chunk():
    assert CHUNK_ELEMENTS == logprobs.CHUNK_ELEMENTS
    chunk, hidden = 2**27 // VOCABULARY, 8 * 1024 * HIDDEN * 2
    assert learning()["logits"] == 16 * chunk * VOCABULARY + hidden


def test_the_cache_of_a_group_by_hand():
    config = run()
    sampling = phases_of(config, SHAPE, None, on_cpu=False)[0]
    assert sampling.parts["cache"] == 8 * LAYERS * 2 * 4 * 128 * 2 * (PROMPT_TOKENS + 1024)
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


def test_decoding_on_a_cpu_copies_what_has_no_adapter():
    """Under LoRA the output layer alone, in the order in which oneDNN reads it; else every linear layer."""
    body = VALUES - VOCABULARY * HIDDEN - HIDDEN - LAYERS * HIDDEN
    adapter = {"type": "lora", "rank": 32, "dtype": "float32"}
    for changes, values in (({"adapter": adapter}, 0), ({}, body)):
        config = run(policy={"name": "a/model", "dtype": "float32", **changes})
        lora = config.policy.adapter if changes else None
        sampling, _ = phases_of(config, SHAPE, lora, on_cpu=True)
        assert sampling.parts["sampler"] == 4 * (values + VOCABULARY * HIDDEN)


def test_each_of_several_gpus_has_the_weights_whole_and_a_part_of_the_rest():
    """In bfloat16 2 bytes of each weight, and a quarter of 2 + 4 + 8 for shard, master and moments."""
    parts = learning(resources={"devices": 4, "packing": "off", "microbatch_completions": 4})
    layer = 2 * 2048**2 + 2 * 512 * 2048 + 3 * INNER * HIDDEN + HIDDEN
    assert parts["weights"] == 2 * VALUES
    assert parts["shards"] == 2 * VALUES / 4
    assert parts["optimizer"] == (4 + 8) * VALUES / 4
    assert parts["gradients"] == 4 * VALUES / 4
    assert parts["gathered"] == 2 * (VALUES - LAYERS * layer + 2 * layer)


def test_several_gpus_share_the_completions_of_a_step():
    """64 completions and a micro-batch that may hold all of them: 16 on each of four."""
    four = learning(resources={"devices": 4, "packing": "off", "microbatch_completions": 64})
    one_gpu = learning(resources={"packing": "off", "microbatch_completions": 16})
    assert four["activations"] == one_gpu["activations"]
    assert four["logits"] == one_gpu["logits"]


def test_processes_share_a_slot_of_a_cpu():
    one_process, two = (
        phases_of(run(resources={"devices": devices}), SHAPE, None, on_cpu=True)[0].parts
        for devices in (1, 2)
    )
    assert two["weights"] == 2 * one_process["weights"]
    assert two["context"] == 2 * one_process["context"]
    assert two["shards"] == one_process["weights"]
    assert two["cache"] == one_process["cache"]  # each samples half of the groups


@pytest.mark.parametrize("gigabytes", [1000, 40, 24, 12, 6, 4, 1])
def test_changes_make_it_fit_and_none_of_them_is_idle(gigabytes):
    config, capacity = run(), gigabytes * 1e9
    peak = lambda changed: memory(changed).peak  # noqa: E731
    changes = changes_that_fit(config, peak, capacity, row_tokens=PROMPT_TOKENS + 1024)
    if changes is None:
        assert gigabytes == 1
        return
    assert sum(change.saves_bytes for change in changes) >= peak(config) - capacity
    assert (changes == []) == (peak(config) <= capacity)
    assert all(change.saves_bytes > 0 for change in changes)


def test_many_experts_count_as_one_weight_of_their_layer():
    experts = [Weight(f"model.layers.0.mlp.experts.{n}.up_proj.weight", (64, 32)) for n in range(100)]
    shape = ModelShape.of(CONFIG, [*WEIGHTS, *experts])
    assert shape.parameters == VALUES + 100 * 64 * 32
    assert len(shape.weights) == len(SHAPE.weights) + 1


@pytest.mark.parametrize("on_cpu", [True, False])
@pytest.mark.parametrize(
    "kind", ["llama", "gpt_oss", "qwen3_next", "falcon_h1", "lfm2", "deepseek_v3", "x" * 99]
)
def test_names_that_fit_no_architecture_still_give_a_number(kind, on_cpu):
    strange = [".linear_attn.a", ".mamba.b", ".conv.conv", ".self_attn.q_proj", ".mlp.experts.w", ".q_norm"]
    weights = [Weight(f"m.layers.{n}{name}.weight", (1,) * n) for n in range(8) for name in strange]
    config = CONFIG | {"model_type": kind, "layer_types": ["sliding_attention", 7, None], "kv_lora_rank": 3}
    estimate = memory_of(
        run(policy={"dtype": "float32"}), ModelShape.of(config, weights), None, on_cpu=on_cpu
    )
    assert 0 < estimate.peak < 1e15


def test_a_model_stored_quantised_or_without_sizes_is_unknown():
    with pytest.raises(UnknownShape, match="quantised"):
        ModelShape.of(CONFIG | {"quantization_config": {"bits": 4}}, WEIGHTS)
    for name in ("hidden_size", "num_attention_heads", "vocab_size"):
        for value in (None, "many", -1, True, 2**70):
            with pytest.raises(UnknownShape, match=name):
                ModelShape.of(CONFIG | {name: value}, WEIGHTS)
    with pytest.raises(UnknownShape, match="no layers"):
        ModelShape.of(CONFIG, WEIGHTS[:3])


def test_more_layers_and_weights_than_any_model_has_are_not_estimated():
    layers = [Weight(f"model.layers.{n}.mlp.up_proj.weight", (INNER, HIDDEN)) for n in range(1_001)]
    many = [Weight(f"model.layers.0.x{n}.weight", (2, 2)) for n in range(20_001)]
    for weights in (layers, many):
        with pytest.raises(UnknownShape, match="at most 1,000 and 20,000 are estimated"):
            ModelShape.of(CONFIG, weights)
