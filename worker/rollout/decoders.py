"""Decoding with a key/value cache: a generic decoder for any causal LM and a fast one for the Llama family.

On a GPU the fast decoder replays CUDA graphs. All decoders share an interface: `prefill` the prompts once,
`select` rows (copies of a prompt, forks, unfinished rows), and `step` with the newest token of every row.
"""

from typing import Protocol

import torch
from torch import Tensor
from transformers import PreTrainedModel

from worker.policy.head import make_head
from worker.policy.lean import is_lean
from worker.rollout.cache import growing_cache
from worker.rollout.graph_decoder import GraphDecoder, has_graphs
from worker.rollout.lean_decoder import LeanDecoder, position_ids


class Decoder(Protocol):
    """Decodes a batch of rows. Logits are float32."""

    def prefill(self, ids: Tensor, mask: Tensor, *, max_rows: int, max_new_tokens: int) -> Tensor:
        """Prefill left-padded prompts (P, S) and return the logits (P, V) after each of them."""
        ...

    def select(self, sources: Tensor) -> None:
        """Let row i continue the text of row `sources[i]` (B,).

        A source row keeps its index, sources[i] == i, unless its index is not among the new rows.
        """
        ...

    def step(self, tokens: Tensor) -> Tensor:
        """Append one token (B,) to every row and return the logits (B, V) after it."""
        ...


def decoder_for(model: PreTrainedModel) -> Decoder:
    """Return the fastest decoder that gives exact results for this model."""
    if not is_lean(model):
        return GenericDecoder(model)
    return GraphDecoder(model) if has_graphs(model) else LeanDecoder(model)


class GenericDecoder:
    """A decoder that uses the model's own layers, whether they cache keys and values or states."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.body, self.head = model.get_decoder(), make_head(model)
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
        """Add some tokens to the cache and return the logits (B, V) after the last one."""
        output = self.body(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
        )
        return self.head(output.last_hidden_state[:, -1])
