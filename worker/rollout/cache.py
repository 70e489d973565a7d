"""Cache of a model's past that is written in place."""

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PretrainedConfig
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer


def growing_cache(config: PretrainedConfig, *, tokens: int) -> DynamicCache:
    """A cache with the kind of layer that each layer of the model needs, for so many tokens.

    transformers joins the keys and values of attention with those of each new token, which copies all of
    them; here they are written into room that is there from the start. The states of recurrent layers do not
    grow: those layers stay as they are.
    """
    cache = DynamicCache(config=config)
    cache.layers = [_in_place(layer, tokens) for layer in cache.layers]
    return cache


def _in_place(layer: Any, tokens: int) -> Any:
    if type(layer) is DynamicLayer:
        return GrowingLayer(tokens)
    if type(layer) is DynamicSlidingWindowLayer and layer.sliding_window > 1:
        return SlidingLayer(layer.sliding_window, tokens)
    return layer


class GrowingLayer(DynamicLayer):
    """Keys and values (B, heads, S, D) of a layer, at the beginning of buffers with room for `tokens`."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.tokens = tokens
        self.keys: Tensor
        self.values: Tensor

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append keys and values (B, heads, N, D); returns all of them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._keys, self._values = (room_for(part, self.tokens) for part in (key_states, value_states))
            length = 0
        else:
            length = self.keys.shape[-2]
        total = length + key_states.shape[-2]
        if total > self._keys.shape[-2]:
            self.tokens = 2 * total
            self._keys, self._values = (moved(part, self.tokens) for part in (self.keys, self.values))
        self._keys[:, :, length:total] = key_states
        self._values[:, :, length:total] = value_states
        self.keys, self.values = self._keys[:, :, :total], self._values[:, :, :total]
        return self.keys, self.values

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Let row i go on as row `beam_idx[i]` (B,), which may be fewer or more rows than there were."""
        if not self.get_seq_length():
            return
        total = self.keys.shape[-2]
        sources = beam_idx.to(self.keys.device)
        self._keys, self._values = (
            moved(part.index_select(0, sources), self.tokens) for part in (self.keys, self.values)
        )
        self.keys, self.values = self._keys[:, :, :total], self._values[:, :, :total]


class SlidingLayer(DynamicSlidingWindowLayer):
    """The newest keys and values (B, heads, S, D) of a sliding window, in buffers a quarter longer than it.

    They stand in the order of the tokens, so attention sums them as it sums transformers' own. Where a buffer
    ends, its newest tokens move to its beginning: about four are copied for each token, not the window.
    """

    def __init__(self, window: int, tokens: int) -> None:
        super().__init__(window)
        self.most = window + window // 4
        self.room = min(tokens, self.most)
        self.end = 0
        """Tokens of the buffers behind which the next ones go."""
        self.keys: Tensor
        self.values: Tensor

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append keys and values (B, heads, N, D); returns those that the N tokens may attend to."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._keys, self._values = (
                room_for(part[:, :, :0], self.room) for part in (key_states, value_states)
            )
            self.keys, self.values = self._keys[:, :, :0], self._values[:, :, :0]
        before, count = self.keys.shape[-2], key_states.shape[-2]
        self.cumulative_length += count
        kept = min(before + count, self.sliding_window - 1)
        if before + count > self.room:
            self.room = self.most
            whole = torch.cat([self.keys, key_states], dim=2), torch.cat([self.values, value_states], dim=2)
            self._begin_with(*(part[:, :, -kept:] for part in whole))
            return whole
        if self.end + count > self.room:
            self._begin_with(self.keys, self.values)
        first, self.end = self.end - before, self.end + count
        self._keys[:, :, self.end - count : self.end] = key_states
        self._values[:, :, self.end - count : self.end] = value_states
        self._keep(kept)
        return self._keys[:, :, first : self.end], self._values[:, :, first : self.end]

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Let row i go on as row `beam_idx[i]` (B,), which may be fewer or more rows than there were."""
        if self.get_seq_length():
            sources = beam_idx.to(self.keys.device)
            self._begin_with(*(part.index_select(0, sources) for part in (self.keys, self.values)))

    def _begin_with(self, keys: Tensor, values: Tensor) -> None:
        """Let the buffers begin with some keys and values; new ones where their rows or their room differ."""
        if keys.shape[0] != self._keys.shape[0] or self.room > self._keys.shape[2]:
            self._keys, self._values = moved(keys, self.room), moved(values, self.room)
        else:
            self._keys[:, :, : keys.shape[-2]] = keys.clone()  # they may lie in the buffer itself
            self._values[:, :, : keys.shape[-2]] = values.clone()
        self.end = keys.shape[-2]
        self._keep(self.end)

    def _keep(self, count: int) -> None:
        first = self.end - count
        self.keys, self.values = self._keys[:, :, first : self.end], self._values[:, :, first : self.end]


def moved(part: Tensor, tokens: int) -> Tensor:
    """A buffer with room for `tokens` that begins with some keys or values."""
    room = room_for(part, tokens)
    room[:, :, : part.shape[-2]] = part
    return room


def room_for(part: Tensor, tokens: int) -> Tensor:
    """A buffer for keys or values like `part`, and at least as many."""
    rows, heads, length, width = part.shape
    return torch.empty(rows, heads, max(tokens, length), width, dtype=part.dtype, device=part.device)
