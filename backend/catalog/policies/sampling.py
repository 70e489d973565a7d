"""Estimate the memory of sampling in bytes: the decoder's cache, the activations and the logits.

The rules follow the decoders and the sampler in worker/rollout. The peak is one of three moments: the prefill
of the prompts, the forward pass of one token through the largest layer, and sampling a token from the logits.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from backend.catalog.policies.mixers import DELTA_CHUNK_TOKENS
from backend.catalog.policies.model_shape import ModelShape, is_linear
from backend.catalog.policies.weight_files import Weight

SCORE_COPIES_BY_MODEL_TYPE = {"gemma2": 2, "gpt_oss": 3}
"""Number of float32 copies of the attention scores, for model types whose attention computes all scores."""

BYTES_PER_DRAWN_TOKEN = 24
"""Bytes per sampled token: 64 bits each for random number and id, 32 each for log-probability and entropy."""

LEAN_MODEL_TYPES = ("llama", "qwen2", "qwen3")
"""Model types that worker.policy.lean decodes."""

JOINED_LAYERS = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("o_proj",), ("down_proj",))
"""Groups of linear layers that worker.policy.lean joins into one matrix product on a CPU."""

MIN_PACKED_VALUES = 2**19
"""Minimum size of a float32 matrix, in values, that worker.policy.lean also keeps in oneDNN's packed layout.
"""

Parts = dict[str, float]


class DecodingBatch(NamedTuple):
    """A batch of rows that are decoded together."""

    rows: int
    prompts: int
    """Number of distinct prompts among the rows."""
    prompt_tokens: int
    new_tokens: int
    value_bytes: int
    is_cut: bool = False
    """Whether top-p or top-k excludes some tokens."""

    @property
    def columns(self) -> int:
        """Number of tokens in a complete row, with prompt and completion."""
        return self.prompt_tokens + self.new_tokens


def sampling_parts(shape: ModelShape, run: DecodingBatch) -> Parts:
    """Return the bytes of each part at the peak of sampling, without the weights."""
    logits = float(run.rows * shape.vocabulary)
    drawn_tokens = float(run.rows * run.new_tokens)
    cache_and_drawn = {
        "cache": run.rows * row_cache(shape, run),
        "drawn": BYTES_PER_DRAWN_TOKEN * drawn_tokens,
    }
    moments: list[Parts] = [
        {**prefill_parts(shape, run), "drawn": 8 * drawn_tokens},  # the random numbers
        {**cache_and_drawn, "activations": token_activations(shape, run), "logits": 8 * logits},
        {**cache_and_drawn, "logits": (64 if run.is_cut else 32) * logits},
    ]
    return max(moments, key=lambda parts: sum(parts.values()))


def row_cache(shape: ModelShape, run: DecodingBatch) -> float:
    """Return the bytes that all layers cache for one row at its full length: keys and values, or states."""
    row_bytes = sum(
        _key_value_bytes(shape, run, number)
        + _state_bytes(shape, weights)
        + run.value_bytes * _convolution_values(shape, weights)
        for number, weights in shape.layers.items()
    )
    if is_lean(shape) and run.prompts > 1:  # rows differ in length: rotary embeddings and the padding mask
        row_bytes += run.value_bytes * (2 * shape.head_width * run.new_tokens + run.columns)
    return row_bytes


def _key_value_bytes(shape: ModelShape, run: DecodingBatch, layer: int) -> float:
    """Return the bytes of one row's keys and values in a layer, which may be cached in compressed form."""
    if not _has_attention(shape.layers[layer]):
        return 0.0
    values = shape.kv_heads * (shape.head_width + shape.value_width)
    if shape.is_compressed:
        values = shape.size("kv_lora_rank") + shape.size("qk_rope_head_dim")
    return float(run.value_bytes * values * _buffer_tokens(shape, layer, run))


def _has_attention(weights: tuple[Weight, ...]) -> bool:
    names = " ".join(weight.name for weight in weights)
    return any(name_part in names for name_part in ("attn.k", "attn.q", "attention.q"))


def _buffer_tokens(shape: ModelShape, layer: int, run: DecodingBatch) -> int:
    """Return the capacity of a layer's buffers in tokens. A sliding window has a quarter to spare."""
    window = shape.window(layer)
    return min(run.columns, window + window // 4) if window else run.columns


def _state_bytes(shape: ModelShape, weights: tuple[Weight, ...]) -> float:
    """Return the bytes of one row's float32 state in a recurrent layer."""
    names = " ".join(weight.name for weight in weights)
    values = 0
    if ".linear_attn." in names:
        values += shape.size("linear_num_value_heads") * shape.size("linear_key_head_dim") * shape.size(
            "linear_value_head_dim"
        )  # fmt: skip
    if ".mamba." in names:
        values += shape.size("mamba_n_heads") * shape.size("mamba_d_head") * shape.size("mamba_d_state")
    return 4.0 * values


def _convolution_values(shape: ModelShape, weights: tuple[Weight, ...]) -> int:
    """Return the number of inputs that a layer's convolution caches for one row, in values."""
    kernels = [weight for weight in weights if "conv" in weight.name and len(weight.shape) == 3]
    return sum(weight.shape[0] * weight.shape[2] for weight in kernels)


def token_activations(shape: ModelShape, run: DecodingBatch) -> float:
    """Return the bytes of the activations of the largest layer while it processes one token of each row."""
    return run.rows * max(
        (_layer_activations(shape, run, number, weights) for number, weights in shape.layers.items()),
        default=0.0,
    )


def _layer_activations(
    shape: ModelShape, run: DecodingBatch, number: int, weights: tuple[Weight, ...]
) -> float:
    width, visible_tokens, heads = run.value_bytes, _buffer_tokens(shape, number, run), shape.heads
    layer_bytes = 5 * _state_bytes(shape, weights)
    if not _has_attention(weights):
        return layer_bytes
    repeated_bytes = width * heads * (shape.head_width + shape.value_width)
    if shape.is_compressed:  # keys and values of all heads, expanded from the compressed cache
        layer_bytes += visible_tokens * (repeated_bytes + width * heads * shape.size("qk_nope_head_dim"))
    elif shape.kind in SCORE_COPIES_BY_MODEL_TYPE:
        layer_bytes += visible_tokens * (repeated_bytes + 4 * SCORE_COPIES_BY_MODEL_TYPE[shape.kind] * heads)
    elif is_lean(shape):  # attention scores and attention weights, in float32
        layer_bytes += visible_tokens * 8 * heads
    return layer_bytes


def prefill_parts(shape: ModelShape, run: DecodingBatch) -> Parts:
    """Return the bytes of each part when the prefill reaches the last layer with a gated delta rule.

    For a model without such layers, this is the last layer. The cache contains the layers up to that one.
    Keys and values have room for all rows from the start. States exist only for the prompts.
    """
    tokens = run.prompts * run.prompt_tokens
    inner_size = shape.size("intermediate_size", "moe_intermediate_size")
    activations = float(tokens * run.value_bytes * (4 * shape.hidden + 3 * inner_size))
    linear = [number for number, weights in shape.layers.items() if _is_linear(weights)]
    last_layer = max(linear or shape.layers, default=0)
    if linear:
        padded_tokens = run.prompts * math.ceil(run.prompt_tokens / DELTA_CHUNK_TOKENS) * DELTA_CHUNK_TOKENS
        widths = shape.size("linear_key_head_dim") + shape.size("linear_value_head_dim")
        activations += (
            4.0 * padded_tokens * shape.size("linear_num_value_heads") * (3 * DELTA_CHUNK_TOKENS + 8 * widths)
        )
    cache = run.rows * sum(
        _key_value_bytes(shape, run, number) for number in shape.layers if number <= last_layer
    )
    return {"cache": cache, "activations": activations}


def _is_linear(weights: tuple[Weight, ...]) -> bool:
    return any(".linear_attn." in weight.name for weight in weights)


def is_lean(shape: ModelShape) -> bool:
    """Return whether worker.policy.lean decodes the model: the Llama family with dense layers."""
    return shape.kind in LEAN_MODEL_TYPES and not any(map(shape.window, shape.layers))


def copied_values(shape: ModelShape, is_adapted: Callable[[Weight], bool], *, is_packed: bool) -> int:
    """Return the number of weight values that decoding on a CPU copies: joined layers and large matrices.

    Layers with an adapter are not copied. `is_packed` means that the weights are in float32 and large
    matrices are packed.
    """
    if not is_lean(shape):
        return 0
    output_values = shape.vocabulary * shape.hidden
    total = output_values if is_packed and output_values >= MIN_PACKED_VALUES else 0
    for weights in shape.layers.values():
        for module_names in JOINED_LAYERS:
            joined_weights = [
                weight for weight in weights if is_linear(weight) and weight.module_name in module_names
            ]
            values = sum(weight.values for weight in joined_weights)
            is_copied = len(joined_weights) > 1 or (is_packed and values >= MIN_PACKED_VALUES)
            if is_copied and not any(map(is_adapted, joined_weights)):
                total += values
    return total
