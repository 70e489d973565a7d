"""Cache of a model's past that is written in place."""

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PretrainedConfig
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer


def growing_cache(config: PretrainedConfig, *, rows: int, tokens: int) -> DynamicCache:
    """A cache with the kind of layer that each layer of the model needs, for so many rows of so many tokens.

    transformers joins the keys and values of attention with those of each new token, and copies all of them
    when rows are chosen; here they are written into room that is there from the start, and only rows that
    change are copied. The states of recurrent layers do not grow: those layers stay as they are, also where
    attention stands beside a state in one layer (Falcon-H1).
    """
    cache = DynamicCache(config=config)
    cache.layers = [_in_place(layer, rows, tokens) for layer in cache.layers]
    return cache


def _in_place(layer: Any, rows: int, tokens: int) -> Any:
    if type(layer) is DynamicLayer:
        return GrowingLayer(rows, tokens)
    if type(layer) is DynamicSlidingWindowLayer and layer.sliding_window > 1:
        return SlidingLayer(layer.sliding_window, rows, tokens)
    return layer


class GrowingLayer(DynamicLayer):
    """Keys and values (B, heads, S, D) of a layer, at the beginning of buffers for `rows` of `tokens`."""

    def __init__(self, rows: int, tokens: int) -> None:
        super().__init__()
        self.rows, self.tokens = rows, tokens
        self.keys: Tensor
        self.values: Tensor

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Append keys and values (B, heads, N, D); returns all of them."""
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
                moved(states, self.rows, self.tokens) for states in (self.keys, self.values)
            )
        self._keys[: len(key_states), :, length:total] = key_states
        self._values[: len(key_states), :, length:total] = value_states
        self._show(len(key_states), total)
        return self.keys, self.values

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Let row i go on as row `beam_idx[i]` (B,), which may be fewer or more rows than there were."""
        if not self.get_seq_length():
            return
        total = self.keys.shape[-2]
        self._keys, self._values = (
            chosen(states, beam_idx.to(states.device), slice(0, total))
            for states in (self._keys, self._values)
        )
        self._show(len(beam_idx), total)

    def _show(self, rows: int, total: int) -> None:
        self.keys, self.values = self._keys[:rows, :, :total], self._values[:rows, :, :total]


class SlidingLayer(DynamicSlidingWindowLayer):
    """The newest keys and values (B, heads, S, D) of a sliding window, in buffers a quarter longer than it.

    They stand in the order of the tokens, so attention sums them as it sums transformers' own. Where a buffer
    ends, its newest tokens move to its beginning: about four are copied for each token, not the window.
    """

    def __init__(self, window: int, rows: int, tokens: int) -> None:
        super().__init__(window)
        self.rows, self.most = rows, window + window // 4
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
                room_for(states[:, :, :0], self.rows, self.room) for states in (key_states, value_states)
            )
            self._show(len(key_states), 0)
        rows, before, count = len(key_states), self.keys.shape[-2], key_states.shape[-2]
        self.cumulative_length += count
        retained = min(before + count, self.sliding_window - 1)
        if before + count > self.room:
            self.room = self.most
            attended = (
                torch.cat([self.keys, key_states], dim=2),
                torch.cat([self.values, value_states], dim=2),
            )
            self._begin_with(*(states[:, :, -retained:] for states in attended))
            return attended
        if self.end + count > self.room:
            self._begin_with(self.keys, self.values)
        first, self.end = self.end - before, self.end + count
        self._keys[:rows, :, self.end - count : self.end] = key_states
        self._values[:rows, :, self.end - count : self.end] = value_states
        self._show(rows, retained)
        return self._keys[:rows, :, first : self.end], self._values[:rows, :, first : self.end]

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Let row i go on as row `beam_idx[i]` (B,), which may be fewer or more rows than there were."""
        if not self.get_seq_length():
            return
        retained = self.keys.shape[-2]
        tokens = slice(self.end - retained, self.end)
        self._keys, self._values = (
            chosen(states, beam_idx.to(states.device), tokens) for states in (self._keys, self._values)
        )
        self._show(len(beam_idx), retained)

    def _begin_with(self, keys: Tensor, values: Tensor) -> None:
        """Let the buffers begin with some keys and values; new buffers where these have no room for them."""
        rows, self.end = len(keys), keys.shape[-2]
        if self.room > self._keys.shape[-2]:
            self._keys, self._values = (moved(states, self.rows, self.room) for states in (keys, values))
        else:
            self._keys[:rows, :, : self.end] = keys.clone()  # they may lie in the buffer itself
            self._values[:rows, :, : self.end] = values.clone()
        self._show(rows, self.end)

    def _show(self, rows: int, count: int) -> None:
        first = self.end - count
        self.keys = self._keys[:rows, :, first : self.end]
        self.values = self._values[:rows, :, first : self.end]


def chosen(buffer: Tensor, sources: Tensor, tokens: slice) -> Tensor:
    """A buffer whose row i holds some tokens of what was row `sources[i]`: the same one where it has room."""
    if len(sources) > len(buffer):
        room = room_for(buffer, len(sources), buffer.shape[-2])
        room[: len(sources), :, tokens] = buffer[sources][:, :, tokens]
        return room
    changed = (sources != torch.arange(len(sources), device=sources.device)).nonzero().squeeze(1)
    if len(changed):
        buffer[changed, :, tokens] = buffer[sources[changed], :, tokens]
    return buffer


def moved(states: Tensor, rows: int, tokens: int) -> Tensor:
    """A buffer that begins with some keys or values."""
    room = room_for(states, rows, tokens)
    room[: len(states), :, : states.shape[-2]] = states
    return room


def room_for(states: Tensor, rows: int, tokens: int) -> Tensor:
    """A buffer for keys or values like `states`, with room for so many rows and tokens, or theirs if more."""
    state_rows, heads, length, width = states.shape
    size = max(rows, state_rows), heads, max(tokens, length), width
    return torch.empty(size, dtype=states.dtype, device=states.device)
