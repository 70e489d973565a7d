"""The table of the estimated memory of common models, for docs/one-gpu.md."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from backend.catalog.policies.memory import estimate_memory
from backend.catalog.policies.model_shape import ModelShape
from backend.catalog.policies.weight_files import Weight
from backend.config.adapters import LoraAdapter
from backend.config.merge import merge, resolve
from backend.config.policies import LANGUAGE_MODEL


class Sizes(NamedTuple):
    """The sizes in a config.json of Qwen2.5."""

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    is_tied: bool


MODELS = (
    Sizes("Qwen2.5-0.5B", 896, 4_864, 24, 14, 2, 151_936, is_tied=True),
    Sizes("Qwen2.5-1.5B", 1_536, 8_960, 28, 12, 2, 151_936, is_tied=True),
    Sizes("Qwen2.5-3B", 2_048, 11_008, 36, 16, 2, 151_936, is_tied=True),
    Sizes("Qwen2.5-7B", 3_584, 18_944, 28, 28, 4, 152_064, is_tied=False),
)
"""Source: the config.json of each model on the hub."""

LORA: dict[str, Any] = {"policy": {"adapter": {"type": "lora"}}, "optimizer": {"lr": 1e-5}}
LEAN: dict[str, Any] = {"resources": {"activation_checkpointing": True}}
CHANGES_BY_COLUMN = {
    "all weights": {},
    "all weights, checkpointing": LEAN,
    "LoRA": LORA,
    "LoRA, checkpointing": merge(LORA, LEAN),
    "nf4 + LoRA, checkpointing": merge(merge(LORA, LEAN), {"policy": {"quantization": "nf4"}}),
}
"""Changes of the language model profile by column."""


def memory_rows() -> Iterator[list[str]]:
    """Yield a row for each model: its name and the peak of each column in GB."""
    for sizes in MODELS:
        shape = ModelShape.from_config(_config(sizes), list(_weights(sizes)))
        yield [sizes.name, *(_peak(shape, changes) for changes in CHANGES_BY_COLUMN.values())]


def _peak(shape: ModelShape, changes: dict[str, Any]) -> str:
    base = merge(LANGUAGE_MODEL.profile, {"policy": {"name": "owner/model", "revision": "0" * 40}})
    config = resolve(base, {"preset": "grpo", **changes}, 0)
    adapter = config.policy.adapter if isinstance(config.policy.adapter, LoraAdapter) else None
    return f"{estimate_memory(config, shape, adapter, on_cpu=False).peak / 1e9:.0f} GB"


def _config(sizes: Sizes) -> dict[str, Any]:
    return {
        "model_type": "qwen2",
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.intermediate,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "vocab_size": sizes.vocabulary,
        "max_position_embeddings": 32_768,
        "tie_word_embeddings": sizes.is_tied,
    }


def _weights(sizes: Sizes) -> Iterator[Weight]:
    hidden, intermediate = sizes.hidden, sizes.intermediate
    kv_width = sizes.kv_heads * hidden // sizes.heads
    yield Weight("model.embed_tokens.weight", (sizes.vocabulary, hidden))
    yield Weight("lm_head.weight", (sizes.vocabulary, hidden))
    yield Weight("model.norm.weight", (hidden,))
    shape_by_name: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj.weight": (hidden, hidden),
        "self_attn.q_proj.bias": (hidden,),
        "self_attn.k_proj.weight": (kv_width, hidden),
        "self_attn.k_proj.bias": (kv_width,),
        "self_attn.v_proj.weight": (kv_width, hidden),
        "self_attn.v_proj.bias": (kv_width,),
        "self_attn.o_proj.weight": (hidden, hidden),
        "mlp.gate_proj.weight": (intermediate, hidden),
        "mlp.up_proj.weight": (intermediate, hidden),
        "mlp.down_proj.weight": (hidden, intermediate),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    for layer in range(sizes.layers):
        for name, shape in shape_by_name.items():
            yield Weight(f"model.layers.{layer}.{name}", shape)
