"""Estimate the memory that autograd saves in a forward pass for the backward pass, layer by layer.

The rules follow the operations of the layers in transformers. Tests compare their sum with the tensors that
are actually alive. The number of tokens is rows x columns, including padding.
"""

from typing import NamedTuple

from backend.catalog.policies.forward_pass import ForwardPass
from backend.catalog.policies.mixers import attention, convolution, delta_rule, state_space
from backend.catalog.policies.model_shape import ModelShape, is_expert, is_linear
from backend.catalog.policies.tree_activations import tree_layer
from backend.catalog.policies.weight_files import Weight

FLOAT32_NORM_PREFIXES = ("gemma", "gpt_oss", "olmo2", "olmo3", "qwen3_next", "qwen3_5")
"""Prefixes of the model types whose norms multiply by their gain in float32."""

INPUT_BY_MODULE = {
    **dict.fromkeys(
        ("q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value", "q_a_proj", "kv_a_proj_with_mqa"),
        "attention",
    ),
    **dict.fromkeys(
        ("in_proj_qkvz", "in_proj_ba", "in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b"), "linear"
    ),
    **dict.fromkeys(
        ("gate_proj", "up_proj", "gate_up_proj", "w1", "w3", "input_linear", "shared_expert_gate"), "mlp"
    ),
}
"""Input of each linear layer, by module name. Layers with the same value read the same tensor."""

MLP_OUTPUT_MODULES = ("down_proj", "w2", "dense_4h_to_h", "output_linear")
ATTENTION_OUTPUT_MODULES = ("o_proj", "dense")
MIXED_COPY_MODEL_TYPES = (
    "deepseek_v3",
    "gemma2",
    "glm4",
    "gpt_neox",
    "gpt_oss",
    "phi3",
    "qwen3_5_text",
    "qwen3_next",
)
"""Model types whose attention output layer reads a copy of the mixed values, or their product with a gate."""


class KeptBytes(NamedTuple):
    """The memory that a forward pass keeps, in bytes, without the weights of the model."""

    layers: tuple[float, ...]
    """Bytes of each layer."""
    ends: float
    """Bytes of the embeddings and the final norm."""
    inputs: float
    """Bytes of the input of one layer, the only tensor of it that is kept with activation checkpointing."""
    passing: float
    """Maximum bytes of activation gradients during the backward pass of one layer."""

    def limit(self, *, is_recomputed: bool) -> float:
        """Return the bytes that are kept when the backward pass begins."""
        return self.ends + (len(self.layers) * self.inputs if is_recomputed else sum(self.layers))

    def recomputed_bytes(self, *, is_recomputed: bool) -> float:
        """Return the bytes that the backward pass adds: gradients and, if recomputed, the largest layer."""
        return self.passing + (max(self.layers) if is_recomputed else 0.0)


def kept_bytes(shape: ModelShape, run: ForwardPass) -> KeptBytes:
    """Return the memory that the model keeps without its output layer, which `logits_bytes` counts."""
    if uses_tree(shape, run):
        return KeptBytes(*tree_layer(shape, run))
    layers = [_layer_bytes(shape, run, number, weights) for number, weights in shape.layers.items()]
    if not run.trains_base:  # operations before the first adapted weight need no gradient
        layers[0] -= run.tokens * _first_norm_bytes(shape)
    final = run.tokens * (_norm_bytes(shape, run, shape.hidden) + shape.hidden * run.value_bytes)
    inputs = run.tokens * shape.hidden * run.value_bytes
    passing_bytes = 4.0 * run.tokens * (2 * shape.hidden + _mlp_width(shape))
    if run.adapts_experts:
        # a layer's gate and up gradients, two thirds of its experts
        passing_bytes += max(map(_merged_expert_values, shape.weights)) * run.value_bytes * 2 / 3
    if run.is_packed and run.on_cpu and (shape.kind == "gemma2" or shape.is_compressed):
        passing_bytes += 6.0 * run.tokens * shape.heads * run.visible_tokens  # gradients of all scores
    return KeptBytes(tuple(layers), final, inputs, passing_bytes)


def uses_tree(shape: ModelShape, run: ForwardPass) -> bool:
    """Return whether the learner uses the tree of prefixes: on a CPU in float32, if there are few scores."""
    scores = run.rows * (run.columns + 1) ** 2 * shape.heads
    is_lean = shape.kind in ("llama", "qwen2", "qwen3") and all(
        any(weight.module_name == "down_proj" and is_linear(weight) for weight in weights)
        for weights in shape.layers.values()
    )
    return (
        run.on_cpu
        and not run.is_packed
        and not run.by_rows
        and run.value_bytes == 4
        and is_lean
        and scores <= 2**27
    )


def _mlp_width(shape: ModelShape) -> int:
    """Return the number of inner values of an MLP for one token. Each
    chosen expert reads a copy of its input.
    """
    experts_per_token = shape.size("num_experts_per_tok", "top_k")
    inner_size = shape.size("moe_intermediate_size", "intermediate_size") * (
        3 if shape.kind == "gpt_oss" else 1
    )
    routed_values = experts_per_token * (inner_size + shape.hidden)
    has_experts = any(map(is_expert, shape.weights))
    return max(shape.size("intermediate_size"), routed_values if has_experts else 0)


def _first_norm_bytes(shape: ModelShape) -> float:
    if shape.kind == "cohere2":
        return 8 * shape.hidden + 4
    is_first = "olmo" not in shape.kind and shape.kind != "gpt_neox"
    return 4 * shape.hidden + 4 if is_first else 0


def _layer_bytes(shape: ModelShape, run: ForwardPass, number: int, weights: tuple[Weight, ...]) -> float:
    names = " ".join(weight.name for weight in weights)
    per_token = sum(_layer_norm_bytes(shape, run, weight) for weight in weights)
    per_token += _linear_bytes(shape, run, weights)
    per_token += sum(
        _mlp_bytes(shape, run, weight)
        for weight in weights
        if weight.module_name in MLP_OUTPUT_MODULES and is_linear(weight)
    )
    if any(map(is_expert, weights)):
        per_token += _expert_bytes(shape, run)
    summed_bytes = sum(map(_merged_expert_values, weights)) * run.value_bytes if run.adapts_experts else 0.0
    if run.keeps_expanded:
        summed_bytes += sum(weight.values for weight in filter(is_linear, weights)) * run.value_bytes
    mixer_bytes = 0.0
    if "attn.q" in names or "attention.q" in names or "self_attn.kv" in names:
        mixer_bytes += attention(shape, run, window=shape.window(number))
    if ".linear_attn." in names:
        mixer_bytes += delta_rule(shape, run)
    if ".mamba." in names:
        mixer_bytes += state_space(shape, run)
    if ".conv.conv" in names:
        mixer_bytes += convolution(shape, run)
    return mixer_bytes + summed_bytes + run.tokens * per_token


def _merged_expert_values(weight: Weight) -> int:
    """Return the number of values of an expert weight merged with its adapter, or 0 for other weights."""
    return weight.values if is_expert(weight) else 0


def expert_sizes(shape: ModelShape) -> list[int]:
    """Return the dimensions of both expert weights of a layer: gate with up, and down."""
    count = shape.size("num_experts", "num_local_experts", "n_routed_experts")
    inner_size = shape.size("moe_intermediate_size", "intermediate_size")
    return [count * size for size in (shape.hidden, 2 * inner_size, inner_size, shape.hidden)]


def _layer_norm_bytes(shape: ModelShape, run: ForwardPass, weight: Weight) -> float:
    """Return the bytes per token of a norm, given its gain, or 0 for other weights."""
    if len(weight.shape) != 1 or "norm" not in weight.name or not weight.name.endswith(".weight"):
        return 0.0
    if ".mamba." in weight.name or ".linear_attn." in weight.name:
        return 0.0  # counted with the layers that contain them
    if shape.kind == "gpt_neox" and "post_attention" in weight.name:
        return 2.0 * run.value_bytes  # both norms read the same input
    width = weight.shape[0]
    heads = 1
    if weight.module_name.startswith(("q_norm", "q_layernorm")) and width == shape.head_width:
        heads = shape.heads
    elif weight.module_name.startswith(("k_norm", "k_layernorm")) and width == shape.head_width:
        heads = shape.kv_heads
    return heads * _norm_bytes(shape, run, width)


def _norm_bytes(shape: ModelShape, run: ForwardPass, width: int) -> float:
    """Return the bytes of a norm per token: its float32 input, the inverse norm and the input of the gain."""
    if shape.kind == "gpt_neox":
        return run.value_bytes * (width + 2)
    if shape.kind == "cohere2":
        return 4 * (width * (3 if run.trains_base else 2) + 1)
    gain = 4 if shape.kind.startswith(FLOAT32_NORM_PREFIXES) else run.value_bytes
    return 4 * width + 4 + (gain * width if run.trains_base else 0)


def _linear_bytes(shape: ModelShape, run: ForwardPass, weights: tuple[Weight, ...]) -> float:
    """Return the bytes of linear layers per token: inputs of trained weights, or of an adapter's A and B."""
    seen_sources = set() if shape.kind in MIXED_COPY_MODEL_TYPES else {"mixed"}
    per_token = 0.0
    for weight in filter(is_linear, weights):
        source = (
            "mixed"
            if weight.module_name in ATTENTION_OUTPUT_MODULES
            else INPUT_BY_MODULE.get(weight.module_name, weight.name)
        )
        source = f"{source} of shared experts" if "shared" in weight.name and source != "mlp" else source
        # both read the same norm
        source = "attention" if shape.kind == "cohere2" and source == "mlp" else source
        inputs = weight.shape[1]
        if run.trains_base:
            per_token += 0 if source in seen_sources else inputs * run.value_bytes
        elif run.is_adapted(weight):
            is_copied = run.adapter_bytes != run.value_bytes
            per_token += inputs * run.adapter_bytes if is_copied or source not in seen_sources else 0
            per_token += run.rank * run.adapter_bytes
        else:
            continue
        seen_sources.add(source)
    return per_token


def _mlp_bytes(shape: ModelShape, run: ForwardPass, weight: Weight) -> float:
    """Return the bytes per token of an MLP's nonlinear part: gate, activation and factor, or its input."""
    return (1 if shape.kind == "gpt_neox" else 3) * run.value_bytes * weight.shape[1]


def _expert_bytes(shape: ModelShape, run: ForwardPass) -> float:
    """Return the bytes per token of the routed experts, whose inputs are copied for a grouped product."""
    count = shape.size("num_experts", "num_local_experts", "n_routed_experts")
    experts_per_token = shape.size("num_experts_per_tok", "top_k") or 1
    inner_size = shape.size("moe_intermediate_size", "intermediate_size")
    width, base = run.value_bytes, run.trains_base or run.adapts_experts
    values = 3 + base if shape.kind != "gpt_oss" else 6 + base
    expert_bytes = width * (values * inner_size + (2 if base else 1) * shape.hidden + 1) + 24
    router = 4 * count + 20 * experts_per_token + (width * shape.hidden if base else 0)
    return experts_per_token * expert_bytes + router
