"""Record of the experts that process each token while a batch is sampled from a mixture of experts."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from worker.policy.routing import RouterWatch, expert_ids
from worker.rollout.sharing import UnfinishedRows


class RoutesLog:
    """Collects the routers' choices token by token, for L layers with K experts per token."""

    def __init__(self, model: PreTrainedModel, watch: RouterWatch, *, rows: int, tokens: int) -> None:
        self.watch, self.dtype = watch, expert_ids(model)
        self.rows, self.tokens = rows, tokens
        self.generated: Tensor | None = None  # (tokens, rows, L, K)
        self.prompts: list[NDArray[Any]] = []

    def prompt(self, mask: Tensor) -> None:
        """Record the choices for left-padded prompts (P, S), which have just been processed."""
        experts = self.watch.experts().to(self.dtype)  # (P * S, L, K)
        self.generated = experts.new_zeros(self.tokens, self.rows, *experts.shape[1:])
        by_prompt = experts.view(*mask.shape, *experts.shape[1:])
        self.prompts = [
            row[is_token].cpu().numpy() for row, is_token in zip(by_prompt, mask.bool(), strict=True)
        ]

    def token(self, unfinished_rows: UnfinishedRows, *, step: int) -> None:
        """Record the choices for token `step`, which has just been processed."""
        if self.generated is not None:
            experts = self.watch.experts().to(self.dtype).index_select(0, unfinished_rows.source_rows)
            self.generated[step].index_copy_(0, unfinished_rows.rows, experts)

    def split_rows(self, lengths: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Return the choices for the tokens of each row's prompt and completion.

        The last token is not included, because it is never processed.
        """
        if self.generated is None:
            return []
        generated = self.generated.transpose(0, 1).contiguous().cpu().numpy()
        group = len(generated) // len(self.prompts)
        return [
            np.concatenate([self.prompts[row // group], generated[row, : length - 1]])
            for row, length in enumerate(lengths)
        ]
