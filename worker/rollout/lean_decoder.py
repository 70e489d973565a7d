"""Decoding for the Llama family with a few large operations and a cache that is written in place."""

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedModel

from worker.policy.lean import LeanLayer, LeanModel


class LeanDecoder:
    """Decoder for the Llama family with a cache that is written in place.

    Keys and values are stored in one tensor per layer, (2, max_rows, KV heads, S, D) with S the final length.
    The query heads that share a key head are the rows of one small matrix product, so nothing is repeated.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.lean = LeanModel(model, prepacks=True)

    def prefill(self, ids: Tensor, mask: Tensor, *, max_rows: int, max_new_tokens: int) -> Tensor:
        """See Decoder."""
        self.cache: list[Tensor] = []  # free the memory of the previous batch first
        is_even = bool(mask.all())
        output = self.model(
            input_ids=ids,
            attention_mask=None if is_even else mask,
            position_ids=position_ids(mask),
            use_cache=True,
            logits_to_keep=1,
        )
        self.rows, self.length = ids.shape
        self.capacity = self._room(self.length + max_new_tokens)
        self.cache = [
            self._grow_cache(layer.keys, layer.values, max_rows) for layer in output.past_key_values.layers
        ]
        self._begin(mask, is_even=is_even)
        return output.logits[:, -1].float()

    def _begin(self, mask: Tensor, *, is_even: bool) -> None:
        """Prepare decoding after prompts (P, S)."""
        self.bias = None if is_even else self._padding_bias(mask)
        self._set_rotations(mask.sum(dim=1)[: 1 if is_even else None])

    def _room(self, tokens: int) -> int:
        """Return the number of cache positions allocated for `tokens` tokens."""
        return tokens

    def _grow_cache(self, keys: Tensor, values: Tensor, max_rows: int) -> Tensor:
        cache = keys.new_empty(2, max_rows, self.lean.kv_heads, self.capacity, self.lean.width)
        cache[0, : self.rows, :, : self.length] = keys
        cache[1, : self.rows, :, : self.length] = values
        return cache

    def _padding_bias(self, mask: Tensor) -> Tensor:
        """Return the bias of attention scores, (P, 1, capacity): the lowest number on padding, else 0."""
        full_mask = functional.pad(mask.bool(), (0, self.capacity - mask.shape[1]), value=True)
        bias = torch.zeros(full_mask.shape, dtype=self.model.dtype, device=mask.device)
        return bias.masked_fill_(~full_mask, torch.finfo(bias.dtype).min)[:, None]

    def _set_rotations(self, first: Tensor) -> None:
        """Set rotations (steps, P, 1, D) of the positions from `first` (P,) on. P is 1 if they are all
        equal.
        """
        steps = torch.arange(self.capacity - self.length, device=first.device)
        self.cosines, self.sines = self.lean.rotations(steps[:, None] + first)
        self.steps_done = 0

    def select(self, sources: Tensor) -> None:
        """See Decoder."""
        self._move(sources)
        if self.bias is not None:
            self.bias = self.bias[sources]
            self.cosines, self.sines = self.cosines[:, sources], self.sines[:, sources]

    def _move(self, sources: Tensor) -> None:
        """Select the cache rows `sources` (B,)."""
        self.rows = len(sources)
        moved_rows = (sources != torch.arange(self.rows, device=sources.device)).nonzero().squeeze(1)
        for cache in self.cache if len(moved_rows) else ():
            cache[:, moved_rows, :, : self.length] = cache[:, sources[moved_rows], :, : self.length]

    def step(self, tokens: Tensor) -> Tensor:
        """See Decoder."""
        rotations = self.cosines[self.steps_done], self.sines[self.steps_done]
        logits = self._read(tokens, rotations, self.length + 1)
        self.length += 1
        self.steps_done += 1
        return logits.float()

    def _read(self, tokens: Tensor, rotations: tuple[Tensor, Tensor], span: int) -> Tensor:
        """Return the logits (B, V) after one token (B,) of each row, which attends to `span` positions."""
        hidden = self.lean.embed(tokens)
        for layer, cache in zip(self.lean.layers, self.cache, strict=True):
            attention_output = self._attend(layer, cache[:, : len(tokens)], hidden, rotations, span)
            hidden = layer.finish(hidden, attention_output)
        return self.lean.scores(self.lean.final_norm(hidden))

    def _attend(
        self, layer: LeanLayer, cache: Tensor, hidden: Tensor, rotations: tuple[Tensor, Tensor], span: int
    ) -> Tensor:
        """Store this token's keys and values, and return the mixed values (B, heads * D) of `span`
        positions.
        """
        queries, keys, values = layer.project(hidden, *rotations)
        self._store(cache, keys, values)
        return self._mix(layer, cache, queries, span).reshape(len(hidden), -1)

    def _mix(self, layer: LeanLayer, cache: Tensor, queries: Tensor, span: int) -> Tensor:
        """Return the values of `span` positions, mixed for queries (B, heads, D), in the same order."""
        rows = len(queries)
        pairs = rows * layer.kv_heads
        past_keys, past_values = cache.view(2, pairs, self.capacity, layer.width)[:, :, :span]
        queries = queries.reshape(pairs, layer.heads // layer.kv_heads, layer.width) * layer.scaling
        scores = torch.bmm(queries, past_keys.transpose(1, 2))
        if self.bias is not None:
            scores = (scores.view(rows, -1, span) + self.bias[:rows, :, :span]).view(scores.shape)
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(queries.dtype)
        return torch.bmm(weights, past_values)

    def _store(self, cache: Tensor, keys: Tensor, values: Tensor) -> None:
        """Write keys and values (B, KV heads, D) of a token after those of earlier tokens."""
        cache[0, :, :, self.length] = keys
        cache[1, :, :, self.length] = values


def position_ids(mask: Tensor) -> Tensor:
    """Return positions (B, S) that count only real tokens. Padding gets 0."""
    return (mask.long().cumsum(dim=-1) - 1).clamp_(min=0)
