"""Record the token ids that top-p or top-k left for each token while a batch is sampled."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from worker.rollout.sharing import UnfinishedRows
from worker.types import SamplingMask


class SamplingMaskLog:
    """Collects the kept token ids while a batch is sampled."""

    def __init__(self) -> None:
        self.kept_ids: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, logprobs: Tensor, unfinished_rows: UnfinishedRows, *, step: int) -> None:
        """Record the ids of possible tokens at `step`, whose log-probabilities (U, V) are above minus
        infinity.
        """
        is_possible = logprobs > -torch.inf
        is_possible &= ~is_possible.all(dim=1, keepdim=True)
        readers, ids = is_possible.index_select(0, unfinished_rows.source_rows).nonzero(as_tuple=True)
        self.kept_ids.append((unfinished_rows.rows[readers], torch.full_like(ids, step), ids))

    def split_rows(self, lengths: NDArray[np.int64]) -> list[SamplingMask]:
        """Return the ids that were left for each token of completions of these lengths."""
        rows, steps, ids = (torch.cat(tensors).cpu().numpy() for tensors in zip(*self.kept_ids, strict=True))
        order = np.lexsort((ids, steps, rows))
        rows, steps, ids = rows[order], steps[order], ids[order]
        bounds = np.searchsorted(rows, np.arange(len(lengths) + 1))
        masks = []
        for length, first, end in zip(lengths, bounds[:-1], bounds[1:], strict=True):
            inside = first + int(np.searchsorted(steps[first:end], length))
            counts = np.bincount(steps[first:inside], minlength=length)
            masks.append(SamplingMask(counts.astype(np.int64), ids[first:inside]))
        return masks
