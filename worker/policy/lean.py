"""The layers of the Llama family as a few large operations, for decoding and for training on a CPU.

The results equal those of `transformers` with the same weights. Projections of the same input are joined, and
norms and rotations are applied to queries and keys together.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from worker.policy.adapter import is_lora_linear
from worker.policy.int8 import Int8Linear

FAMILY = ("llama", "qwen2", "qwen3")
"""Model types that are supported."""

ROPES = ("default", "linear", "llama3", "yarn")
"""Types of rotary embedding with angles that depend only on the position."""

MIN_PACKED = 2**19
"""Minimum number of values of a matrix for which packing is faster: 2 MiB, more than a core's cache holds."""


class Heads(NamedTuple):
    """The rotated queries and keys, and the values, of some tokens."""

    queries: Tensor
    """Queries, (N, heads, D)."""
    keys: Tensor
    """Keys, (N, KV heads, D)."""
    values: Tensor
    """Values, (N, KV heads, D)."""


class LeanModel:
    """A view of a model's weights with copies of joined projections. It has to be created anew after each
    update.

    The layers are created on first use.
    """

    def __init__(self, model: PreTrainedModel, *, prepacks: bool = False) -> None:
        """Create the view.

        `prepacks` packs large matrices once for many products without gradient. Otherwise each product packs
        them again, which takes most of its time if there are few rows.
        """
        self.body: Any = model.model
        self.head: Any = model.lm_head
        config: Any = model.config
        self.heads: int = config.num_attention_heads
        self.kv_heads: int = config.num_key_value_heads
        self.width: int = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.copies = self.head.weight.device.type == "cpu"
        self.prepacks = prepacks

    @cached_property
    def layers(self) -> list["LeanLayer"]:
        """All decoder layers."""
        return [LeanLayer(layer, self) for layer in self.body.layers]

    @cached_property
    def scores(self) -> "Joined":
        """The output layer, from normed hidden states (N, H) to logits (N, V)."""
        return self.joined(self.head)

    def joined(self, *projections: nn.Module) -> "Joined":
        """Return the joined projections of one input."""
        return Joined(projections, copies=self.copies, prepacks=self.prepacks)

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the hidden states (N, H) of tokens (N,)."""
        return functional.embedding(tokens, self.body.embed_tokens.weight)

    def rotations(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines and signed sines (..., 1, D) of positions (...)."""
        flat_positions = positions.reshape(1, -1)
        cosines, sines = self.body.rotary_emb(self.head.weight, flat_positions)
        half_width = self.width // 2
        sines = torch.cat([-sines[..., :half_width], sines[..., half_width:]], dim=-1)
        shape = (*positions.shape, 1, self.width)
        return cosines.view(shape), sines.view(shape)

    def final_norm(self, hidden: Tensor) -> Tensor:
        """Return the final norm of the last layer's output (N, H)."""
        return rms_norm(hidden, self.body.norm.weight, self.body.norm.variance_epsilon)


class LeanLayer:
    """One decoder layer."""

    def __init__(self, layer: Any, model: LeanModel) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        self.heads, self.kv_heads, self.width = model.heads, model.kv_heads, model.width
        self.qkv = model.joined(attention.q_proj, attention.k_proj, attention.v_proj)
        self.gate_up = model.joined(mlp.gate_proj, mlp.up_proj)
        self.out, self.down = model.joined(attention.o_proj), model.joined(mlp.down_proj)
        self.scaling: float = attention.scaling
        self.before_attention, self.before_mlp = layer.input_layernorm, layer.post_attention_layernorm
        self.epsilon: float = layer.input_layernorm.variance_epsilon
        self.head_weights: Tensor | None = None  # (heads + KV heads, D)
        if hasattr(attention, "q_norm"):
            norms = (
                attention.q_norm.weight.expand(self.heads, -1),
                attention.k_norm.weight.expand(self.kv_heads, -1),
            )
            self.head_weights = torch.cat(norms)

    def project(self, hidden: Tensor, cosines: Tensor, sines: Tensor) -> Heads:
        """Return queries, keys and values of hidden states (N, H) at positions with these rotations."""
        normed = rms_norm(hidden, self.before_attention.weight, self.epsilon)
        heads = self.qkv(normed).view(len(hidden), -1, self.width)
        rotated_heads = self.heads + self.kv_heads
        queries_keys = heads[:, :rotated_heads]
        if self.head_weights is not None:
            queries_keys = rms_norm(queries_keys, self.head_weights, self.epsilon)
        rotated_heads_values = torch.addcmul(
            queries_keys * cosines, queries_keys.roll(self.width // 2, dims=-1), sines
        )
        return Heads(
            rotated_heads_values[:, : self.heads],
            rotated_heads_values[:, self.heads :],
            heads[:, rotated_heads:],
        )

    def finish(self, hidden: Tensor, attention_output: Tensor) -> Tensor:
        """Return the layer's output (N, H) from its input (N, H) and the mixed values (N, heads * D)."""
        hidden = hidden + self.out(attention_output)
        normed = rms_norm(hidden, self.before_mlp.weight, self.epsilon)
        gate, up = self.gate_up.project_each(normed)
        return hidden + self.down(functional.silu(gate) * up)


class Joined:
    """Projections of one input, which are computed as one product on a CPU.

    On a GPU they are not joined, to save the memory of a copy. Layers in 8 bits or with an adapter are not
    joined either.
    """

    def __init__(self, projections: Sequence[nn.Module], *, copies: bool, prepacks: bool) -> None:
        self.projections = projections
        self.weight: Tensor | None = None
        self.bias: Tensor | None = None
        self.packed: Tensor | None = None
        """The weight in oneDNN's packed layout."""
        if copies and all(type(projection) is nn.Linear for projection in projections):
            biases: list[Any] = [projection.bias for projection in projections if projection.bias is not None]
            weights: list[Any] = [projection.weight for projection in projections]
            self.weight = weights[0] if len(weights) == 1 else torch.cat(weights)
            self.bias = torch.cat(biases) if biases else None
            if prepacks and suits_packing(self.weight):
                self.packed = torch.ops.mkldnn._reorder_linear_weight(self.weight)  # noqa: SLF001
                self.weight = None

    def __call__(self, hidden: Tensor) -> Tensor:
        """Return the concatenated outputs (N, sum of sizes)."""
        if self.packed is not None:
            return _packed_linear(hidden, self.packed, self.bias)
        if self.weight is not None:
            return functional.linear(hidden, self.weight, self.bias)
        if len(self.projections) == 1:
            return self.projections[0](hidden)
        return torch.cat([projection(hidden) for projection in self.projections], dim=-1)

    def project_each(self, hidden: Tensor) -> Sequence[Tensor]:
        """Return the outputs (N, size) of each projection."""
        if self.weight is None and self.packed is None:
            return [projection(hidden) for projection in self.projections]
        return self(hidden).chunk(len(self.projections), dim=-1)


def suits_packing(weight: Tensor) -> bool:
    """Return whether products with this weight (outputs, inputs) are faster if oneDNN has packed it."""
    on_cpu = weight.device.type == "cpu" and weight.dtype == torch.float32
    return on_cpu and weight.numel() >= MIN_PACKED and torch.backends.mkldnn.is_available()


def _packed_linear(hidden: Tensor, packed_weight: Tensor, bias: Tensor | None) -> Tensor:
    rows = len(hidden)
    padded_hidden = functional.pad(hidden, (0, 0, 0, packed_rows(rows) - rows))
    product: Tensor = torch.ops.mkldnn._linear_pointwise(padded_hidden, packed_weight, bias, "none", [], "")  # noqa: SLF001
    return product[:rows]


def packed_rows(rows: int) -> int:
    """Return the row count to which a product with a packed matrix is padded.

    There are few such counts, because oneDNN keeps up to 2 MB for each.

    >>> [packed_rows(rows) for rows in (1, 5, 33, 64, 65, 129)]
    [4, 8, 64, 64, 128, 192]
    """
    return max(4, 1 << (rows - 1).bit_length()) if rows <= 64 else -(-rows // 64) * 64


def rms_norm(hidden: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Apply the root-mean-square norm over the last axis, with statistics and rounding of the Llama
    family.
    """
    wide = hidden.float() if hidden.dtype == torch.float64 else hidden
    return functional.rms_norm(wide, hidden.shape[-1:], eps=epsilon).to(hidden.dtype) * weight


def is_lean(model: PreTrainedModel) -> bool:
    """Return whether `LeanModel` computes exactly the same as the model's forward pass."""
    config: Any = model.config
    linear = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head")
    return (
        config.model_type in FAMILY
        and type(model).__module__.startswith("transformers.models.")
        and config.hidden_act == "silu"
        and set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"}
        and config.rope_parameters.get("rope_type", "default") in ROPES
        and all(
            type(module) in (nn.Linear, Int8Linear) or is_lora_linear(module)
            for name, module in model.named_modules()
            if name.rpartition(".")[2] in linear
        )
    )
