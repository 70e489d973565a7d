"""Decoding with a key/value cache: a generic path for any causal LM, a lean one for the Llama family.

Both speak the same small language: `prefill` the prompts once, `select` rows (copies of a prompt, forks, the
rows that go on), `step` with the newest token of every row.
"""

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from worker.policy.head import head_of
from worker.policy.lean import LeanLayer, LeanModel, is_lean
from worker.rollout.cache import growing_cache


class Decoder(Protocol):
    """Decodes a batch of rows; logits are float32."""

    def prefill(self, ids: Tensor, mask: Tensor, *, max_rows: int, max_new_tokens: int) -> Tensor:
        """Read left-padded prompts (P, S) and return the logits (P, V) after each of them."""
        ...

    def select(self, sources: Tensor) -> None:
        """Let row i continue what row `sources[i]` (B,) has read so far.

        A row that is a source keeps its place, sources[i] == i, unless its place is not among the new rows.
        """
        ...

    def step(self, tokens: Tensor) -> Tensor:
        """Append one token (B,) to every row and return the logits (B, V) after it."""
        ...


def decoder_for(model: PreTrainedModel) -> Decoder:
    """The fastest decoder that is exact for this model."""
    return LeanDecoder(model) if is_lean(model) else GenericDecoder(model)


class GenericDecoder:
    """Decoding through the model's own layers, whatever they keep of the past: keys and values, or states."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.body, self.head = model.get_decoder(), head_of(model)
        self.config = model.config

    def prefill(self, ids: Tensor, mask: Tensor, *, max_rows: int, max_new_tokens: int) -> Tensor:
        """See Decoder."""
        self.cache = growing_cache(self.config, rows=max_rows, tokens=ids.shape[1] + max_new_tokens)
        self.mask = torch.cat([mask, mask.new_ones(len(mask), max_new_tokens)], dim=1)
        self.positions = mask.sum(dim=1, keepdim=True)  # (P, 1) of the next token
        self.length = ids.shape[1]
        return self._read(ids, mask, position_ids(mask))

    def select(self, sources: Tensor) -> None:
        """See Decoder."""
        self.cache.reorder_cache(sources)
        self.mask, self.positions = self.mask[sources], self.positions[sources]

    def step(self, tokens: Tensor) -> Tensor:
        """See Decoder."""
        self.length += 1
        logits = self._read(tokens[:, None], self.mask[:, : self.length], self.positions)
        self.positions = self.positions + 1
        return logits

    def _read(self, ids: Tensor, mask: Tensor, positions: Tensor) -> Tensor:
        """Logits (B, V) after the last of some tokens, which enter the cache."""
        output = self.body(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
        )
        return self.head(output.last_hidden_state[:, -1])


class LeanDecoder:
    """Decoding for the Llama family with a cache that is written in place.

    Keys and values live in one tensor per layer, (2, max_rows, KV heads, S, D) with S the final length; the
    query heads that share a key head are the rows of one small matrix product, so nothing is repeated.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.lean = LeanModel(model)

    def prefill(self, ids: Tensor, mask: Tensor, *, max_rows: int, max_new_tokens: int) -> Tensor:
        """See Decoder."""
        is_even = bool(mask.all())
        output = self.model(
            input_ids=ids,
            attention_mask=None if is_even else mask,
            position_ids=position_ids(mask),
            use_cache=True,
            logits_to_keep=1,
        )
        self.rows, self.length = ids.shape
        self.capacity = self.length + max_new_tokens
        self.cache = [
            self._grown(layer.keys, layer.values, max_rows) for layer in output.past_key_values.layers
        ]
        self.bias = None if is_even else self._padding_bias(mask)
        self._set_rotations(mask.sum(dim=1)[: 1 if is_even else None])
        return output.logits[:, -1].float()

    def _grown(self, keys: Tensor, values: Tensor, max_rows: int) -> Tensor:
        cache = keys.new_empty(2, max_rows, self.lean.kv_heads, self.capacity, self.lean.width)
        cache[0, : self.rows, :, : self.length] = keys
        cache[1, : self.rows, :, : self.length] = values
        return cache

    def _padding_bias(self, mask: Tensor) -> Tensor:
        """What is added to attention scores, (P, 1, capacity): lowest on padding, else 0."""
        whole = functional.pad(mask.bool(), (0, self.capacity - mask.shape[1]), value=True)
        bias = torch.zeros(whole.shape, dtype=self.model.dtype, device=mask.device)
        return bias.masked_fill_(~whole, torch.finfo(bias.dtype).min)[:, None]

    def _set_rotations(self, first: Tensor) -> None:
        """Rotations (steps, P, 1, D) of the positions to come after the first (P,); P is 1 when all agree."""
        steps = torch.arange(self.capacity - self.length, device=first.device)
        self.cosines, self.sines = self.lean.rotations(steps[:, None] + first)
        self.steps_done = 0

    def select(self, sources: Tensor) -> None:
        """See Decoder."""
        self.rows = len(sources)
        moved = (sources != torch.arange(self.rows, device=sources.device)).nonzero().squeeze(1)
        for cache in self.cache if len(moved) else ():
            cache[:, moved, :, : self.length] = cache[:, sources[moved], :, : self.length]
        if self.bias is not None:
            self.bias = self.bias[sources]
            self.cosines, self.sines = self.cosines[:, sources], self.sines[:, sources]

    def step(self, tokens: Tensor) -> Tensor:
        """See Decoder."""
        rotations = self.cosines[self.steps_done], self.sines[self.steps_done]
        hidden = self.lean.embed(tokens)
        for layer, cache in zip(self.lean.layers, self.cache, strict=True):
            hidden = layer.finish(hidden, self._attend(layer, cache[:, : self.rows], hidden, rotations))
        self.length += 1
        self.steps_done += 1
        return functional.linear(self.lean.normed(hidden), self.lean.head.weight).float()

    def _attend(
        self, layer: LeanLayer, cache: Tensor, hidden: Tensor, rotations: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Store this token's keys and values; mix the values (B, heads * D) of all tokens so far."""
        queries, keys, values = layer.project(hidden, *rotations)
        cache[0, :, :, self.length] = keys
        cache[1, :, :, self.length] = values
        pairs, so_far = self.rows * layer.kv_heads, self.length + 1
        past_keys, past_values = cache.view(2, pairs, self.capacity, layer.width)[:, :, :so_far]
        queries = queries.reshape(pairs, layer.heads // layer.kv_heads, layer.width) * layer.scaling
        scores = torch.bmm(queries, past_keys.transpose(1, 2))
        if self.bias is not None:
            scores = (scores.view(self.rows, -1, so_far) + self.bias[..., :so_far]).view(scores.shape)
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(hidden.dtype)
        return torch.bmm(weights, past_values).view(self.rows, -1)


def position_ids(mask: Tensor) -> Tensor:
    """Positions (B, S) that count real tokens only; padding gets 0."""
    return (mask.long().cumsum(dim=-1) - 1).clamp_(min=0)
