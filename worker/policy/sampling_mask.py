"""Sampling masks: the tokens that top-p or top-k left, over which log-probabilities are renormalised."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from worker.types import SamplingMask


class MaskPairs(NamedTuple):
    """The kept ids of the N tokens of a batch as K pairs. Tokens without a pair kept the complete
    vocabulary.
    """

    token: Tensor
    """Index of the token of each pair, (K,), ascending."""
    ids: Tensor
    """Kept id of each pair, (K,)."""

    def to(self, device: torch.device) -> "MaskPairs":
        """Return the pairs on another device."""
        return MaskPairs(self.token.to(device), self.ids.to(device))

    def between(self, first: int, end: int) -> "MaskPairs":
        """Return the pairs of tokens first..end-1, renumbered from 0."""
        low, high = torch.searchsorted(self.token, torch.tensor([first, end], device=self.token.device))
        return MaskPairs(self.token[low:high] - first, self.ids[low:high])


def mask_pairs(rows: Sequence[SamplingMask]) -> MaskPairs:
    """Return the pairs of consecutive completions."""
    counts = np.concatenate([row.counts for row in rows])
    token = np.repeat(np.arange(len(counts)), counts)
    return MaskPairs(torch.from_numpy(token), torch.from_numpy(np.concatenate([row.ids for row in rows])))


def mask_log_mass(logprobs: Tensor, state_indices: Tensor, pairs: MaskPairs) -> Tensor:
    """Return the log-probability (N,) of the kept set at each token, 0 if nothing was cut off.

    `logprobs` (M, V) are complete distributions, and `state_indices` (N,) holds the index of each token's
    distribution. The result is a logarithm of a sum of exponentials, so it is finite even for a tiny
    probability.
    """
    indices = state_indices.index_select(0, pairs.token) * logprobs.shape[1] + pairs.ids
    values = logprobs.reshape(-1).index_select(0, indices)  # (K,)
    max_logprobs = logprobs.new_full(state_indices.shape, -torch.inf)
    # detach: a constant that is added back
    max_logprobs = max_logprobs.scatter_reduce(0, pairs.token, values.detach(), "amax")
    is_cut = max_logprobs > -torch.inf
    max_logprobs = max_logprobs.where(is_cut, max_logprobs.new_zeros(()))
    relative = (values - max_logprobs.index_select(0, pairs.token)).exp()
    total = logprobs.new_zeros(state_indices.shape).index_add(0, pairs.token, relative)
    return total.where(is_cut, total.new_ones(())).log() + max_logprobs
