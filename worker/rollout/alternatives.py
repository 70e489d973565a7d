"""The most likely tokens at each position of a completion, collected while a batch is sampled."""

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from worker.rollout.sharing import UnfinishedRows
from worker.types import Alternatives


class AlternativesLog(NamedTuple):
    """Ids and log-probabilities of the k most likely tokens, both (T, B, k)."""

    ids: Tensor
    logprobs: Tensor

    @classmethod
    def blank(
        cls, count: int, *, tokens: int, rows: int, vocabulary: int, device: torch.device
    ) -> "AlternativesLog":
        """Create a log for `count` alternatives per token of all rows, or fewer if the vocabulary is
        smaller.
        """
        shape = (tokens, rows, min(count, vocabulary))
        return cls(
            torch.zeros(shape, dtype=torch.int32, device=device),
            torch.full(shape, -torch.inf, device=device),
        )

    def add(self, logprobs: Tensor, unfinished_rows: UnfinishedRows, *, step: int) -> None:
        """Record the most likely of the log-probabilities (U, V) from which token `step` is sampled."""
        values, ids = logprobs.topk(self.ids.shape[-1], dim=-1)
        self.ids[step].index_copy_(
            0, unfinished_rows.rows, ids.to(torch.int32).index_select(0, unfinished_rows.source_rows)
        )
        self.logprobs[step].index_copy_(
            0, unfinished_rows.rows, values.float().index_select(0, unfinished_rows.source_rows)
        )

    def split_rows(self, lengths: NDArray[np.int64]) -> list[Alternatives]:
        """Return the alternatives at each token of completions of these lengths."""
        ids, logprobs = (tensor.transpose(0, 1).cpu().numpy() for tensor in self)
        return [
            Alternatives(ids[row, :length].copy(), logprobs[row, :length].copy())
            for row, length in enumerate(lengths)
        ]
