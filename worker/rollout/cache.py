"""Key/value cache of a model that is written in place."""

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PretrainedConfig
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer


def growing_cache(config: PretrainedConfig, *, rows: int, tokens: int) -> DynamicCache:
    """Create a cache with the layer types that the model needs, for `rows` rows of `tokens` tokens.

    transformers concatenates the keys and values of attention with those of each new token, and copies all of
    them when rows are selected. Here they are written into buffers allocated in advance, and only rows that
    change are copied. The states of recurrent layers do not grow, so those layers stay unchanged, even if a
    layer combines attention with a state (Falcon-H1).
    """
    cache = DynamicCache(config=config)
    cache.layers = [_replace_cache(layer, rows, tokens) for layer in cache.layers]
    return cache


def _replace_cache(layer: Any, rows: int, tokens: int) -> Any:
    if type(layer) is DynamicLayer:
        return GrowingLayer(rows, tokens)
    if type(layer) is DynamicSlidingWindowLayer and layer.sliding_window > 1:
        return SlidingLayer(layer.sliding_window, rows, tokens)
    return layer


class GrowingLayer(DynamicLayer):
    """Keys and values (B, heads, S, D) of a layer, in buffers for `rows` rows of `tokens` tokens."""

    def __init__(self, rows: int, tokens: int) -> None:
        super().__init__()
        self.rows, self.tokens = rows, tokens
        self.keys: Tensor
        self.values: Tensor

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append keys and values (B, heads, N, D) and return all of them."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._keys, self._values = (
                room_for(states, self.rows, self.tokens) for states in (key_states, value_states)
            )
            length = 0
        else:
            length = self.keys.shape[-2]
        total = length + key_states.shape[-2]
        if total > self._keys.shape[-2]:
            self.tokens = 2 * total
            self._keys, self._values = (
                copy_to_buffer(states, self.rows, self.tokens) for states in (self.keys, self.values)
            )
        self._keys[: len(key_states), :, length:total] = key_states
        self._values[: len(key_states), :, length:total] = value_states
        self._show(len(key_states), total)
        return self.keys, self.values

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Let row i continue as row `beam_idx[i]` (B,), which may be fewer or more rows than before."""
        if not self.get_seq_length():
            return
        total = self.keys.shape[-2]
        self._keys, self._values = (
            select_rows(states, beam_idx.to(states.device), slice(0, total))
            for states in (self._keys, self._values)
        )
        self._show(len(beam_idx), total)

    def _show(self, rows: int, total: int) -> None:
        self.keys, self.values = self._keys[:rows, :, :total], self._values[:rows, :, :total]


class SlidingLayer(DynamicSlidingWindowLayer):
    """The newest keys and values (B, heads, S, D) of a sliding window, in buffers larger by a quarter.

    They are kept in token order, so attention sums them in the same order as in transformers. When a buffer
    is full, its newest tokens move to its start. About four tokens are copied per token instead of the whole
    window.
    """

    def __init__(self, window: int, rows: int, tokens: int) -> None:
        super().__init__(window)
        self.rows, self.limit = rows, window + window // 4
        self.capacity = min(tokens, self.limit)
        self.end = 0
        """Number of tokens in the buffers. The next tokens are written after them."""
        self.keys: Tensor
        self.values: Tensor

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append keys and values (B, heads, N, D) and return those that the N tokens may attend to."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._keys, self._values = (
                room_for(states[:, :, :0], self.rows, self.capacity) for states in (key_states, value_states)
            )
            self._show(len(key_states), 0)
        rows, previous_length, count = len(key_states), self.keys.shape[-2], key_states.shape[-2]
        self.cumulative_length += count
        retained_tokens = min(previous_length + count, self.sliding_window - 1)
        if previous_length + count > self.capacity:
            self.capacity = self.limit
            attended_states = (
                torch.cat([self.keys, key_states], dim=2),
                torch.cat([self.values, value_states], dim=2),
            )
            self._begin_with(*(states[:, :, -retained_tokens:] for states in attended_states))
            return attended_states
        if self.end + count > self.capacity:
            self._begin_with(self.keys, self.values)
        start, self.end = self.end - previous_length, self.end + count
        self._keys[:rows, :, self.end - count : self.end] = key_states
        self._values[:rows, :, self.end - count : self.end] = value_states
        self._show(rows, retained_tokens)
        return self._keys[:rows, :, start : self.end], self._values[:rows, :, start : self.end]

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Let row i continue as row `beam_idx[i]` (B,), which may be fewer or more rows than before."""
        if not self.get_seq_length():
            return
        retained = self.keys.shape[-2]
        tokens = slice(self.end - retained, self.end)
        self._keys, self._values = (
            select_rows(states, beam_idx.to(states.device), tokens) for states in (self._keys, self._values)
        )
        self._show(len(beam_idx), retained)

    def _begin_with(self, keys: Tensor, values: Tensor) -> None:
        """Write keys and values to the start of the buffers, and allocate new buffers if they do not fit."""
        rows, self.end = len(keys), keys.shape[-2]
        if self.capacity > self._keys.shape[-2]:
            self._keys, self._values = (
                copy_to_buffer(states, self.rows, self.capacity) for states in (keys, values)
            )
        else:
            self._keys[:rows, :, : self.end] = keys.clone()  # They may be part of the buffer itself.
            self._values[:rows, :, : self.end] = values.clone()
        self._show(rows, self.end)

    def _show(self, rows: int, count: int) -> None:
        first = self.end - count
        self.keys = self._keys[:rows, :, first : self.end]
        self.values = self._values[:rows, :, first : self.end]


def select_rows(buffer: Tensor, sources: Tensor, tokens: slice) -> Tensor:
    """Return a buffer whose row i holds tokens of the former row `sources[i]`, in place if the rows fit."""
    if len(sources) > len(buffer):
        new_buffer = room_for(buffer, len(sources), buffer.shape[-2])
        new_buffer[: len(sources), :, tokens] = buffer[sources][:, :, tokens]
        return new_buffer
    moved_rows = (sources != torch.arange(len(sources), device=sources.device)).nonzero().squeeze(1)
    if len(moved_rows):
        buffer[moved_rows, :, tokens] = buffer[sources[moved_rows], :, tokens]
    return buffer


def copy_to_buffer(states: Tensor, rows: int, tokens: int) -> Tensor:
    """Return a buffer that starts with the given keys or values."""
    new_buffer = room_for(states, rows, tokens)
    new_buffer[: len(states), :, : states.shape[-2]] = states
    return new_buffer


def room_for(states: Tensor, rows: int, tokens: int) -> Tensor:
    """Allocate a buffer for keys or values like `states`, at least as large as `states`."""
    state_rows, heads, length, width = states.shape
    size = max(rows, state_rows), heads, max(tokens, length), width
    return torch.empty(size, dtype=states.dtype, device=states.device)
