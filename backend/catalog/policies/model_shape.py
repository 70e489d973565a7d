"""The sizes of a causal language model, from its config.json and the shapes of its weights."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from backend.catalog.policies.text_model import is_loaded, is_outside_text_model, text_config
from backend.catalog.policies.weight_files import Weight

MAX_SIZE = 10**7
"""Maximum value of a config field that is accepted as a size."""

MAX_LAYERS = 1_000
MAX_WEIGHTS = 20_000
"""Maximum number of weights, with all routed experts of a layer counted as one. It exceeds
that of any model and keeps the estimate fast.
"""

NON_LINEAR_NAME_PARTS = ("embed", "wte", "wpe", "lm_head", "mlp.gate.weight", "router.weight")
"""Parts of the names of two-dimensional weights that do not belong to a linear layer of the body."""


class UnknownShape(ValueError):
    """The config.json or the weights do not define the size of the model."""


@dataclass(frozen=True)
class ModelShape:
    """The config and the weight shapes of a text model."""

    config: Mapping[str, Any]
    """The fields of config.json that describe the text model."""
    weights: tuple[Weight, ...]
    """Weights of the text model, without an output layer that shares the weights of the input embedding."""
    other_weights: int = 0
    """Number of values of the frozen image and audio weights that are loaded with the text model."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any], weights: Sequence[Weight]) -> "ModelShape":
        """Return the shape of a model. Raises UnknownShape if its sizes are missing or too large."""
        text_fields = text_config(config)
        if text_fields.get("quantization_config") is not None:
            raise UnknownShape("its weights are stored quantised, and their shapes with them")
        is_tied = text_fields.get("tie_word_embeddings", config.get("tie_word_embeddings", False)) is True
        kept_weights = tuple(
            weight
            for weight in weights
            if not is_outside_text_model(weight.name) and not (is_tied and is_output(weight))
        )
        other_weights = sum(
            weight.values
            for weight in weights
            if is_outside_text_model(weight.name) and is_loaded(weight.name, config)
        )
        shape = cls(text_fields, _merge_experts(kept_weights), other_weights)
        for name in ("hidden_size", "num_attention_heads", "vocab_size"):
            if not shape.size(name):
                raise UnknownShape(f"its config.json has no {name}")
        if not shape.layers:
            raise UnknownShape("its weights name no layers")
        if len(shape.layers) > MAX_LAYERS or len(shape.weights) > MAX_WEIGHTS:
            count = f"{len(shape.layers):,} layers and {len(shape.weights):,} weights"
            limits = f"{MAX_LAYERS:,} and {MAX_WEIGHTS:,}"
            raise UnknownShape(f"it has {count}; at most {limits} are estimated")
        return shape

    def size(self, *names: str) -> int:
        """Return the value of the first field that contains a size, or 0 if none does."""
        for name in names:
            value = self.config.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_SIZE:
                return value
        return 0

    @property
    def kind(self) -> str:
        """Model type, such as qwen3."""
        return str(self.config.get("model_type", ""))

    @property
    def hidden(self) -> int:
        """Width of the residual stream (H)."""
        return self.size("hidden_size")

    @property
    def vocabulary(self) -> int:
        """Number of logits (V)."""
        return self.size("vocab_size")

    @property
    def heads(self) -> int:
        """Number of query heads in a layer."""
        return self.size("num_attention_heads")

    @property
    def kv_heads(self) -> int:
        """Number of key heads in a layer. It equals that of query heads
        for compressed attention and GPT-NeoX.
        """
        if self.is_compressed or self.kind == "gpt_neox":
            return self.heads
        return self.size("num_key_value_heads") or self.heads

    @property
    def head_width(self) -> int:
        """Width of query and key heads."""
        if self.is_compressed:
            return self.size("qk_nope_head_dim") + self.size("qk_rope_head_dim")
        return self.size("head_dim") or self.hidden // self.heads

    @property
    def value_width(self) -> int:
        """Width of value heads."""
        return self.size("v_head_dim") if self.is_compressed else self.head_width

    @property
    def is_compressed(self) -> bool:
        """Whether keys and values are compressed by a narrow layer (MLA)."""
        return bool(self.size("kv_lora_rank"))

    @cached_property
    def parameters(self) -> int:
        """Number of values of all weights."""
        return sum(weight.values for weight in self.weights)

    @cached_property
    def layers(self) -> dict[int, tuple[Weight, ...]]:
        """The weights of each layer, by layer number."""
        by_layer: dict[int, list[Weight]] = {}
        for weight in self.weights:
            if weight.layer is not None:
                by_layer.setdefault(weight.layer, []).append(weight)
        return {number: tuple(weights) for number, weights in sorted(by_layer.items())}

    def window(self, layer: int) -> int:
        """Return the attention window of a layer in tokens, or 0 if it is not limited."""
        kinds = self.config.get("layer_types")
        window = self.size("sliding_window") if self.config.get("use_sliding_window", True) else 0
        if isinstance(kinds, list) and layer < len(kinds):
            return window if kinds[layer] == "sliding_attention" else 0
        return window


def _merge_experts(weights: Sequence[Weight]) -> tuple[Weight, ...]:
    """Return the weights with all routed experts of a layer, possibly thousands, merged into one weight."""
    other_weights: list[Weight] = []
    experts: dict[int | None, int] = {}
    for weight in weights:
        if is_expert(weight):
            experts[weight.layer] = experts.get(weight.layer, 0) + weight.values
        else:
            other_weights.append(weight)
    joined_weights = [
        Weight(f"layers.layers.{layer}.experts.all", (values,)) for layer, values in experts.items()
    ]
    return (*other_weights, *joined_weights)


def is_expert(weight: Weight) -> bool:
    """Return whether a weight belongs to the routed experts of a mixture."""
    return ".experts." in weight.name or (".block_sparse_moe." in weight.name and len(weight.shape) == 3)


def is_output(weight: Weight) -> bool:
    """Return whether a weight belongs to a separate output layer."""
    return weight.module_name in ("lm_head", "embed_out")


def is_linear(weight: Weight) -> bool:
    """Return whether a weight belongs to a linear layer of the body outside of the routed experts."""
    return (
        len(weight.shape) == 2
        and weight.name.endswith(".weight")
        and not is_expert(weight)
        and not any(name_part in weight.name for name_part in NON_LINEAR_NAME_PARTS)
    )
