"""Cache of a model's past that grows in place."""

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, PretrainedConfig
from transformers.cache_utils import DynamicLayer


def growing_cache(config: PretrainedConfig, *, tokens: int) -> DynamicCache:
    """A cache with the kind of layer that each layer of the model needs, for so many tokens.

    transformers joins the keys and values of full attention with those of each new token, which copies all of
    them; here they are written into room that is there from the start. Sliding windows and the states of
    recurrent layers do not grow: those layers stay as they are.
    """
    cache = DynamicCache(config=config)
    cache.layers = [GrowingLayer(tokens) if type(layer) is DynamicLayer else layer for layer in cache.layers]
    return cache


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
            self._keys, self._values = self._room_for(key_states), self._room_for(value_states)
            length = 0
        else:
            length = self.keys.shape[-2]
        total = length + key_states.shape[-2]
        if total > self._keys.shape[-2]:
            self.tokens = 2 * total
            self._keys, self._values = self._moved(self.keys), self._moved(self.values)
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
            self._moved(part.index_select(0, sources)) for part in (self.keys, self.values)
        )
        self.keys, self.values = self._keys[:, :, :total], self._values[:, :, :total]

    def _moved(self, part: Tensor) -> Tensor:
        """A buffer that begins with some keys or values."""
        room = self._room_for(part)
        room[:, :, : part.shape[-2]] = part
        return room

    def _room_for(self, part: Tensor) -> Tensor:
        rows, heads, length, width = part.shape
        return torch.empty(rows, heads, max(self.tokens, length), width, dtype=part.dtype, device=part.device)
