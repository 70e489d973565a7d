"""The token ids that top-p or top-k left at each token, collected while a batch is sampled."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from worker.rollout.sharing import Going
from worker.types import SamplingMask


class SamplingMaskLog:
    """Collects what was kept while a batch is sampled."""

    def __init__(self) -> None:
        self.parts: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, logprobs: Tensor, going: Going, *, step: int) -> None:
        """Note where the log-probabilities (U, V) that token `step` is drawn from are not minus infinity."""
        kept = logprobs > -torch.inf
        kept &= ~kept.all(dim=1, keepdim=True)
        readers, ids = kept.index_select(0, going.reads).nonzero(as_tuple=True)
        self.parts.append((going.rows[readers], torch.full_like(ids, step), ids))

    def of_rows(self, lengths: NDArray[np.int64]) -> list[SamplingMask]:
        """The ids that were left at each token of completions of these lengths."""
        rows, steps, ids = (torch.cat(part).cpu().numpy() for part in zip(*self.parts, strict=True))
        order = np.lexsort((ids, steps, rows))
        rows, steps, ids = rows[order], steps[order], ids[order]
        bounds = np.searchsorted(rows, np.arange(len(lengths) + 1))
        found = []
        for length, first, end in zip(lengths, bounds[:-1], bounds[1:], strict=True):
            inside = first + int(np.searchsorted(steps[first:end], length))
            counts = np.bincount(steps[first:inside], minlength=length)
            found.append(SamplingMask(counts.astype(np.int64), ids[first:inside]))
        return found
