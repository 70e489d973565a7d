"""Estimate the memory that attention, convolutions and recurrent layers keep for the backward pass."""

import math

from backend.catalog.policies.forward_pass import ForwardPass
from backend.catalog.policies.model_shape import ModelShape

FUSED_PROJECTION_MODEL_TYPES = ("gpt_neox", "phi3")
"""Model types with one projection for queries, keys and values, whose whole output is kept."""

GATED_ATTENTION_MODEL_TYPES = ("qwen3_5_text", "qwen3_next")
"""Model types with gated attention."""

DELTA_CHUNK_TOKENS = 64
"""Chunk size of the gated delta rule, in tokens. Rows are padded to a multiple of it."""


def attention(shape: ModelShape, run: ForwardPass, *, window: int) -> float:
    """Return the bytes of one layer's attention: queries, keys, values, output and sums, or all scores.

    On a GPU, packed rows use flash or flex attention, which keep no scores or masks of all pairs.
    """
    width, columns = run.value_bytes, run.visible_tokens
    heads, keys, values = shape.heads, shape.kv_heads, shape.kv_heads
    head_width, value_width = shape.head_width, shape.value_width
    if shape.kind == "gpt_oss":
        return run.tokens * (3 * width * heads * head_width + heads * (8 + width * (columns + 1)))
    has_kernel = run.is_packed and not run.on_cpu
    if shape.kind == "gemma2" and not has_kernel:
        scores = heads * columns * (width + 4 + (width if width != 4 else 0))
        return run.tokens * (3 * width * heads * head_width + scores)
    if shape.is_compressed and run.on_cpu:
        return run.tokens * 4 * heads * (2 * head_width + value_width + columns)
    mask = 0
    if (
        0 < window < columns or run.is_packed
    ) and not has_kernel:  # a numeric mask, and keys and values repeated for every head
        keys = values = heads
        mask = width * columns
    per_token = (
        width * (heads * head_width + keys * head_width + values * value_width + heads * value_width)
        + 4 * heads
        + mask
    )
    if shape.kind in FUSED_PROJECTION_MODEL_TYPES:
        per_token += width * head_width * (shape.heads + shape.kv_heads)
        per_token += width * head_width * shape.kv_heads * (keys != shape.kv_heads)
    if shape.kind in GATED_ATTENTION_MODEL_TYPES:
        per_token += 2 * width * heads * head_width
    return run.tokens * per_token


def convolution(shape: ModelShape, run: ForwardPass) -> float:
    """Return the bytes of LFM2's short convolution: three inputs, the convolved values and the output."""
    return run.tokens * run.value_bytes * shape.hidden * (5 if run.trains_base else 4)


def delta_rule(shape: ModelShape, run: ForwardPass) -> float:
    """Return the bytes of a gated delta net, computed in float32 and in chunks (Qwen3-Next, Qwen3.5)."""
    heads, key_heads = shape.size("linear_num_value_heads"), shape.size("linear_num_key_heads")
    keys, values = shape.size("linear_key_head_dim"), shape.size("linear_value_head_dim")
    chunk, width, base = DELTA_CHUNK_TOKENS, run.value_bytes, run.trains_base
    padded_tokens = run.rows * math.ceil(run.columns / chunk) * chunk
    head_values = 5 * chunk + 5 * keys + 5 * values + 6 + 2 * keys * values / chunk
    convolved_values = 2 * key_heads * keys + heads * values
    per_token = (1 + base) * width * convolved_values + heads * (8 * (keys + 1) + width + 8)
    per_token += heads * (values * (12 + (2 if base else 1) * width) + 4)  # the gated norm
    return 4 * padded_tokens * heads * head_values + run.tokens * per_token


def state_space(shape: ModelShape, run: ForwardPass) -> float:
    """Return the bytes of Mamba 2, computed in float32 and in chunks (Falcon-H1, Granite 4)."""
    heads, wide = shape.size("mamba_n_heads"), shape.size("mamba_d_head")
    state, groups = shape.size("mamba_d_state"), shape.size("mamba_n_groups") or 1
    chunk, width, base = shape.size("mamba_chunk_size") or 256, run.value_bytes, run.trains_base
    padded_tokens = run.rows * math.ceil(run.columns / chunk) * chunk
    head_values = 3 * chunk + 5 * state + 6 * wide + 2 * wide * state / chunk + 4
    inner_size = heads * wide
    per_token = (1 + base) * width * (inner_size + 2 * groups * state) + 2 * width * heads
    per_token += inner_size * (width + 4) if shape.kind == "falcon_h1" else 20 * inner_size + 4
    return 4 * padded_tokens * heads * head_values + run.tokens * per_token
