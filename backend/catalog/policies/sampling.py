"""Bytes that sampling holds: what a decoder keeps of the past, and what reading and drawing a token take.

The rules follow worker/rollout: the decoders with their cache, and the sampler's numbers for each token.
Three moments may be the peak: reading the prompts, reading a token in the largest layer, and drawing one
from its logits.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from backend.catalog.policies.mixers import DELTA_CHUNK
from backend.catalog.policies.model_shape import ModelShape, is_linear
from backend.catalog.policies.weight_files import Weight

EAGER = {"gemma2": 2, "gpt_oss": 3}
"""Model types whose attention computes all scores, and how many copies of them in float32."""

DRAWN_BYTES = 24
"""For each token of a row: its random number and id in 64 bits, its log-probability and entropy in 32."""

LEAN = ("llama", "qwen2", "qwen3")
"""Model types that worker.policy.lean decodes."""

JOINED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("o_proj",), ("down_proj",))
"""Linear layers whose products it makes as one on a CPU."""

MIN_PACKED = 2**19
"""Values of a float32 matrix from which it keeps a copy in the order in which oneDNN reads it."""

Parts = dict[str, float]


class Decoded(NamedTuple):
    """The rows that are decoded together."""

    rows: int
    prompts: int
    """Different prompts among them."""
    prompt_tokens: int
    new_tokens: int
    value_bytes: int
    is_cut: bool = False
    """Whether top-p or top-k leaves some tokens out."""

    @property
    def columns(self) -> int:
        """Tokens of a row at its end."""
        return self.prompt_tokens + self.new_tokens


def sampling_parts(shape: ModelShape, run: Decoded) -> Parts:
    """The parts at the peak of sampling, without the weights."""
    logits = float(run.rows * shape.vocabulary)
    drawn = float(run.rows * run.new_tokens)
    cache_and_drawn = {"cache": run.rows * row_cache(shape, run), "drawn": DRAWN_BYTES * drawn}
    moments: list[Parts] = [
        {**reading_prompts(shape, run), "drawn": 8 * drawn},  # the random numbers
        {**cache_and_drawn, "activations": reading_token(shape, run), "logits": 8 * logits},
        {**cache_and_drawn, "logits": (64 if run.is_cut else 32) * logits},
    ]
    return max(moments, key=lambda parts: sum(parts.values()))


def row_cache(shape: ModelShape, run: Decoded) -> float:
    """Bytes that the layers keep of one row at its full length: keys and values, or states."""
    row_bytes = sum(
        _keys(shape, run, number) + _state(shape, weights) + run.value_bytes * _convolved(shape, weights)
        for number, weights in shape.layers.items()
    )
    if is_lean(shape) and run.prompts > 1:  # rows of other lengths: their rotations, and what hides padding
        row_bytes += run.value_bytes * (2 * shape.head_width * run.new_tokens + run.columns)
    return row_bytes


def _keys(shape: ModelShape, run: Decoded, layer: int) -> float:
    """Bytes of the keys and values of one row in a layer; compressed ones are kept as they are."""
    if not _attends(shape.layers[layer]):
        return 0.0
    values = shape.kv_heads * (shape.head_width + shape.value_width)
    if shape.is_compressed:
        values = shape.size("kv_lora_rank") + shape.size("qk_rope_head_dim")
    return float(run.value_bytes * values * _room(shape, layer, run))


def _attends(weights: tuple[Weight, ...]) -> bool:
    names = " ".join(weight.name for weight in weights)
    return any(name_part in names for name_part in ("attn.k", "attn.q", "attention.q"))


def _room(shape: ModelShape, layer: int, run: Decoded) -> int:
    """Tokens that a layer's buffers have room for: a sliding window has a quarter to spare."""
    window = shape.window(layer)
    return min(run.columns, window + window // 4) if window else run.columns


def _state(shape: ModelShape, weights: tuple[Weight, ...]) -> float:
    """Bytes of a recurrent layer's state of one row, in float32."""
    names = " ".join(weight.name for weight in weights)
    values = 0
    if ".linear_attn." in names:
        values += shape.size("linear_num_value_heads") * shape.size("linear_key_head_dim") * shape.size(
            "linear_value_head_dim"
        )  # fmt: skip
    if ".mamba." in names:
        values += shape.size("mamba_n_heads") * shape.size("mamba_d_head") * shape.size("mamba_d_state")
    return 4.0 * values


def _convolved(shape: ModelShape, weights: tuple[Weight, ...]) -> int:
    """Values of the newest inputs of a layer's convolution, which it keeps of one row."""
    kernels = [weight for weight in weights if "conv" in weight.name and len(weight.shape) == 3]
    return sum(weight.shape[0] * weight.shape[2] for weight in kernels)


def reading_token(shape: ModelShape, run: Decoded) -> float:
    """Bytes of the layer that takes most while it reads one token of each row."""
    return run.rows * max(
        (_of_layer(shape, run, number, weights) for number, weights in shape.layers.items()), default=0.0
    )


def _of_layer(shape: ModelShape, run: Decoded, number: int, weights: tuple[Weight, ...]) -> float:
    width, seen, heads = run.value_bytes, _room(shape, number, run), shape.heads
    layer_bytes = 5 * _state(shape, weights)
    if not _attends(weights):
        return layer_bytes
    repeated = width * heads * (shape.head_width + shape.value_width)
    if shape.is_compressed:  # keys and values of all heads, from what was kept
        layer_bytes += seen * (repeated + width * heads * shape.size("qk_nope_head_dim"))
    elif shape.kind in EAGER:
        layer_bytes += seen * (repeated + 4 * EAGER[shape.kind] * heads)
    elif is_lean(shape):  # scores, and weights in float32
        layer_bytes += seen * 8 * heads
    return layer_bytes


def reading_prompts(shape: ModelShape, run: Decoded) -> Parts:
    """The parts at the last layer with a gated delta rule, or at the last one: the cache so far, and its own.

    Keys and values have room for all rows from the start; states are those of the prompts.
    """
    tokens = run.prompts * run.prompt_tokens
    inner = shape.size("intermediate_size", "moe_intermediate_size")
    activations = float(tokens * run.value_bytes * (4 * shape.hidden + 3 * inner))
    linear = [number for number, weights in shape.layers.items() if _is_linear(weights)]
    last = max(linear or shape.layers, default=0)
    if linear:
        padded = run.prompts * math.ceil(run.prompt_tokens / DELTA_CHUNK) * DELTA_CHUNK
        wide = shape.size("linear_key_head_dim") + shape.size("linear_value_head_dim")
        activations += 4.0 * padded * shape.size("linear_num_value_heads") * (3 * DELTA_CHUNK + 8 * wide)
    cache = run.rows * sum(_keys(shape, run, number) for number in shape.layers if number <= last)
    return {"cache": cache, "activations": activations}


def _is_linear(weights: tuple[Weight, ...]) -> bool:
    return any(".linear_attn." in weight.name for weight in weights)


def is_lean(shape: ModelShape) -> bool:
    """Whether worker.policy.lean decodes it: the Llama family with dense layers."""
    return shape.kind in LEAN and not any(map(shape.window, shape.layers))


def copied_values(shape: ModelShape, is_adapted: Callable[[Weight], bool], *, is_packed: bool) -> int:
    """Values of the copies that decoding on a CPU makes: of layers that it joins, and of large matrices.

    It copies no layer with an adapter. `is_packed`: the weights are in float32, and large ones are packed.
    """
    if not is_lean(shape):
        return 0
    head = shape.vocabulary * shape.hidden
    total = head if is_packed and head >= MIN_PACKED else 0
    for weights in shape.layers.values():
        for parts in JOINED:
            joined = [weight for weight in weights if is_linear(weight) and weight.module_name in parts]
            values = sum(weight.values for weight in joined)
            is_copied = len(joined) > 1 or (is_packed and values >= MIN_PACKED)
            if is_copied and not any(map(is_adapted, joined)):
                total += values
    return total
