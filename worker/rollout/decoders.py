"""Decoding with a key/value cache: a generic path for any causal LM, a lean one for the Llama family.

Both speak the same small language: `prefill` the prompts once, `repeat` each of them G times, `step` with the
newest token of every row, `keep` the rows that go on. The lean path computes what `transformers` computes
with fewer and larger operations per token.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

LLAMA_FAMILY = ("llama", "qwen2", "qwen3")
"""Model types whose layers are what `LeanDecoder` computes."""


class Decoder(Protocol):
    """Decodes a batch of rows; logits are float32."""

    def prefill(self, ids: Tensor, mask: Tensor, *, max_new_tokens: int) -> Tensor:
        """Read left-padded prompts (P, S) and return the logits (P, V) after each of them."""
        ...

    def repeat(self, count: int) -> None:
        """Continue every prompt `count` times; copies of a prompt are neighbours."""
        ...

    def step(self, tokens: Tensor) -> Tensor:
        """Append one token (B,) to every row and return the logits (B, V) after it."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Go on with n of the rows: row `rows[i]` becomes row i. Either rows[i] == i or rows[i] >= n."""
        ...


def decoder_for(model: PreTrainedModel) -> Decoder:
    """The fastest decoder that is exact for this model."""
    return LeanDecoder(model) if is_lean(model) else GenericDecoder(model)


class GenericDecoder:
    """Decoding through the model's own forward."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model

    def prefill(self, ids: Tensor, mask: Tensor, *, max_new_tokens: int) -> Tensor:
        """See Decoder."""
        self.mask = torch.cat([mask, mask.new_ones(len(mask), max_new_tokens)], dim=1)
        self.positions = mask.sum(dim=1, keepdim=True)  # (P, 1)
        self.length = ids.shape[1]
        output = self.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=position_ids(mask),
            use_cache=True,
            logits_to_keep=1,
        )
        self.cache = output.past_key_values
        return output.logits[:, -1].float()

    def repeat(self, count: int) -> None:
        """See Decoder."""
        self.cache.batch_repeat_interleave(count)
        self.mask = self.mask.repeat_interleave(count, dim=0)
        self.positions = self.positions.repeat_interleave(count, dim=0)

    def step(self, tokens: Tensor) -> Tensor:
        """See Decoder."""
        self.length += 1
        output = self.model(
            input_ids=tokens[:, None],
            attention_mask=self.mask[:, : self.length],
            position_ids=self.positions,
            past_key_values=self.cache,
            use_cache=True,
        )
        self.positions = self.positions + 1
        return output.logits[:, -1].float()

    def keep(self, rows: Tensor) -> None:
        """See Decoder."""
        self.cache.batch_select_indices(rows)
        self.mask, self.positions = self.mask[rows], self.positions[rows]


class LeanDecoder:
    """Decoding for the Llama family with joined projections and a cache that is written in place.

    Keys and values live in two tensors per layer, (B, KV heads, S, D) with S the final length; the query
    heads that share a key head are the rows of one small matrix product, so nothing is repeated.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        config: Any = model.config
        self.layers = [_Layer(layer) for layer in model.model.layers]
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim: int = getattr(config, "head_dim", None) or config.hidden_size // self.heads

    def prefill(self, ids: Tensor, mask: Tensor, *, max_new_tokens: int) -> Tensor:
        """See Decoder."""
        output = self.model(
            input_ids=ids,
            attention_mask=None if bool(mask.all()) else mask,
            position_ids=position_ids(mask),
            use_cache=True,
            logits_to_keep=1,
        )
        self.length, self.capacity = ids.shape[1], ids.shape[1] + max_new_tokens
        self.prompt_cache = [(layer.keys, layer.values) for layer in output.past_key_values.layers]
        self.bias = None if bool(mask.all()) else self._padding_bias(mask)
        self.positions = mask.sum(dim=1) - 1  # (P,) of the last token read
        return output.logits[:, -1].float()

    def _padding_bias(self, mask: Tensor) -> Tensor:
        whole = functional.pad(mask.bool(), (0, self.capacity - mask.shape[1]), value=True)
        bias = torch.zeros(whole.shape, dtype=self.model.dtype, device=mask.device)
        return bias.masked_fill_(~whole, torch.finfo(bias.dtype).min)  # (P, capacity)

    def repeat(self, count: int) -> None:
        """See Decoder."""
        self.positions = self.positions.repeat_interleave(count)
        self.rows = len(self.positions)
        self.cache = [
            (self._grown(keys, count), self._grown(values, count)) for keys, values in self.prompt_cache
        ]
        del self.prompt_cache
        if self.bias is not None:
            self.bias = self.bias.repeat_interleave(count, dim=0)  # (B, capacity)
        self._set_rotations()

    def _grown(self, prompt: Tensor, count: int) -> Tensor:
        cache = prompt.new_empty(len(prompt), count, self.kv_heads, self.capacity, self.head_dim)
        cache[:, :, :, : self.length] = prompt[:, None]
        return cache.view(self.rows, self.kv_heads, self.capacity, self.head_dim)

    def _set_rotations(self) -> None:
        """Cosines and signed sines (capacity - length, B or 1, 1, D) of all positions to come."""
        shared = self.bias is None
        first = self.positions[:1] if shared else self.positions
        steps = torch.arange(1, self.capacity - self.length + 1, device=first.device)
        probe = torch.empty(0, dtype=self.model.dtype, device=first.device)
        cosines, sines = self.model.model.rotary_emb(probe, steps[:, None] + first[None, :])
        sines = torch.cat([-sines[..., : self.head_dim // 2], sines[..., self.head_dim // 2 :]], dim=-1)
        self.cosines, self.sines = cosines[:, :, None], sines[:, :, None]
        self.steps_done = 0

    def step(self, tokens: Tensor) -> Tensor:
        """See Decoder."""
        cosines, sines = self.cosines[self.steps_done], self.sines[self.steps_done]  # (B or 1, 1, D)
        hidden = functional.embedding(tokens, self.model.model.embed_tokens.weight)  # (B, H)
        for layer, cache in zip(self.layers, self.cache, strict=True):
            hidden = self._attend(layer, cache, hidden, cosines, sines)
            normed = layer.mlp_norm(hidden)
            gate, up = functional.linear(normed, layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
            hidden = hidden + functional.linear(
                functional.silu(gate).mul_(up), layer.down.weight, layer.down.bias
            )
        self.length += 1
        self.steps_done += 1
        final: Any = self.model.model.norm
        return functional.linear(
            _rms(hidden, final.weight, final.variance_epsilon), self.model.lm_head.weight
        ).float()

    def _attend(
        self, layer: "_Layer", cache: tuple[Tensor, Tensor], hidden: Tensor, cosines: Tensor, sines: Tensor
    ) -> Tensor:
        rows, kv, width, (keys, values) = self.rows, self.kv_heads, self.head_dim, cache
        joined = functional.linear(layer.attention_norm(hidden), layer.qkv, layer.qkv_bias)
        joined = joined.view(rows, self.heads + 2 * kv, width)
        queries_keys = layer.normed_heads(joined[:, : self.heads + kv], self.heads)
        rotated = queries_keys * cosines
        rotated.addcmul_(queries_keys.roll(width // 2, dims=-1), sines)
        keys[:, :, self.length] = rotated[:, self.heads :]
        values[:, :, self.length] = joined[:, self.heads + kv :]
        queries = rotated[:, : self.heads].reshape(rows * kv, self.heads // kv, width)
        past = keys.view(rows * kv, self.capacity, width)[:, : self.length + 1]
        scores = torch.bmm(queries, past.transpose(1, 2)).mul_(layer.scaling)
        if self.bias is not None:
            scores.view(rows, -1, self.length + 1).add_(self.bias[:, None, : self.length + 1])
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(hidden.dtype)
        past = values.view(rows * kv, self.capacity, width)[:, : self.length + 1]
        mixed = torch.bmm(weights, past).view(rows, self.heads * width)
        return hidden + functional.linear(mixed, layer.out.weight, layer.out.bias)

    def keep(self, rows: Tensor) -> None:
        """See Decoder."""
        self.rows = len(rows)
        moved = (rows != torch.arange(self.rows, device=rows.device)).nonzero().squeeze(1)
        sources = rows[moved]
        for keys, values in self.cache:
            for part in (keys, values):
                part[moved, :, : self.length] = part[sources, :, : self.length]
        self.cache = [(keys[: self.rows], values[: self.rows]) for keys, values in self.cache]
        self.positions = self.positions[rows]
        if self.bias is not None:
            self.bias, self.cosines, self.sines = self.bias[rows], self.cosines[:, rows], self.sines[:, rows]


class _Layer:
    """One layer's weights as the lean path wants them; joined projections are copies, made once a call."""

    def __init__(self, layer: Any) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        projections = [attention.q_proj, attention.k_proj, attention.v_proj]
        self.qkv, self.qkv_bias = _joined(projections)
        self.gate_up, self.gate_up_bias = _joined([mlp.gate_proj, mlp.up_proj])
        self.out, self.down, self.scaling = attention.o_proj, mlp.down_proj, attention.scaling
        self.norms = layer.input_layernorm, layer.post_attention_layernorm
        self.head_norms = (attention.q_norm, attention.k_norm) if hasattr(attention, "q_norm") else None

    def attention_norm(self, hidden: Tensor) -> Tensor:
        return _rms(hidden, self.norms[0].weight, self.norms[0].variance_epsilon)

    def mlp_norm(self, hidden: Tensor) -> Tensor:
        return _rms(hidden, self.norms[1].weight, self.norms[1].variance_epsilon)

    def normed_heads(self, queries_keys: Tensor, heads: int) -> Tensor:
        if self.head_norms is None:
            return queries_keys
        query_norm, key_norm = self.head_norms
        queries, keys = queries_keys[:, :heads], queries_keys[:, heads:]
        normed = torch.empty_like(queries_keys, memory_format=torch.contiguous_format)
        normed[:, :heads] = _rms(queries, query_norm.weight, query_norm.variance_epsilon)
        normed[:, heads:] = _rms(keys, key_norm.weight, key_norm.variance_epsilon)
        return normed


def _joined(projections: Sequence[nn.Linear]) -> tuple[Tensor, Tensor | None]:
    weight = torch.cat([projection.weight.data for projection in projections])
    biases = [projection.bias.data for projection in projections if projection.bias is not None]
    return weight, torch.cat(biases) if biases else None


def _rms(hidden: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Root-mean-square norm with float32 statistics, rounded where the models of the Llama family round."""
    wide = hidden.float()
    wide = wide * torch.rsqrt(wide.square().mean(dim=-1, keepdim=True) + epsilon)
    return wide.to(hidden.dtype) * weight


def position_ids(mask: Tensor) -> Tensor:
    """Positions (B, S) that count real tokens only; padding gets 0."""
    return (mask.long().cumsum(dim=-1) - 1).clamp_(min=0)


def is_lean(model: PreTrainedModel) -> bool:
    """Whether `LeanDecoder` computes exactly what the model's own forward computes."""
    config: Any = model.config
    linear = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head")
    return (
        config.model_type in LLAMA_FAMILY
        and type(model).__module__.startswith("transformers.models.")
        and config.hidden_act == "silu"
        and set(getattr(config, "layer_types", None) or ["full_attention"]) == {"full_attention"}
        and config.rope_parameters.get("rope_type", "default") in ("default", "linear", "llama3", "yarn")
        and all(
            type(m) is nn.Linear for name, m in model.named_modules() if name.rpartition(".")[2] in linear
        )
    )
