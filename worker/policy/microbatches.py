"""Split batches into micro-batches as large as limits and memory allow, and halve them if memory runs out."""

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor

from backend.config.resources import ResourcesConfig
from worker.out_of_memory import is_memory_error
from worker.policy.ranks import ALONE, Ranks
from worker.policy.token_batch import TokenBatch, microbatches

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class Microbatches:
    """Splits batches into micro-batches. `tokens` is the current limit, or 0 if there is none."""

    def __init__(self, resources: ResourcesConfig, *, is_packed: bool = False, ranks: Ranks = ALONE) -> None:
        """Create the splitter.

        If it `is_packed`, padding does not count. `ranks` run the passes of a batch together.
        """
        self.ranks = ranks
        self.rows, self.tokens = resources.microbatch_completions, resources.microbatch_tokens
        self.is_packed = is_packed
        self.halvings = 0
        """Number of times that memory ran out."""

    def split_rows(self, batch: TokenBatch) -> list[Tensor]:
        """Return the row indices of each micro-batch, or none if a rank has no rows."""
        if not len(batch):
            return []
        return microbatches(batch, max_rows=self.rows, max_tokens=self.tokens, is_packed=self.is_packed)

    def run(
        self,
        batch: TokenBatch,
        compute: Callable[[list[Tensor]], Result],
        undo: Callable[[], None] | None = None,
    ) -> Result:
        """Run `compute` on the micro-batches of a batch and return its result.

        If memory runs out, `undo` reverts the incomplete work and `compute` starts again with micro-batches
        of half the size. Raise the error if each micro-batch holds a single completion, or if other ranks
        wait for the passes of this one.
        """
        while True:
            row_indices = self.split_rows(batch)
            try:
                return compute(row_indices)
            except Exception as error:
                is_smallest = max(map(len, row_indices), default=0) < 2
                if not is_memory_error(error) or is_smallest or not self.ranks.is_alone:
                    raise
            # Halve here, because no traceback holds the tensors of the failed pass any more.
            if undo is not None:
                undo()
            self._halve(batch, row_indices)

    def measured(self, tokens: TokenBatch, measure: Callable[[TokenBatch], Sequence[Tensor]]) -> list[Tensor]:
        """Measure micro-batches and return each value of `measure` (b, t, ...) as (B, T, ...), 0 on padding.

        Each rank measures a part of the rows.
        """
        rank_rows = self.ranks.local_rows(tokens.lengths + tokens.prompt_lengths)
        rank_tokens = tokens.rows(rank_rows)
        rank_values = self.run(rank_tokens, lambda parts: _measure_each(rank_tokens, parts, measure))
        if self.ranks.is_alone:
            return rank_values
        full_tensors: list[Tensor] = []
        for rows, values in self.ranks.gathered((rank_rows, [value.cpu() for value in rank_values])):
            _lay(full_tensors, values, rows, tokens.mask.shape)
        return [value.to(tokens.mask.device) for value in full_tensors]

    def limit(self, tokens: int) -> None:
        """Apply a limit that was found before, or none if it is 0."""
        self.tokens = min(self.tokens or tokens, tokens or self.tokens)

    def _halve(self, batch: TokenBatch, row_indices: list[Tensor]) -> None:
        widths = batch.lengths + batch.prompt_lengths
        largest = max(
            int(widths[rows].sum() if self.is_packed else len(rows) * widths[rows].max())
            for rows in row_indices
        )
        self.tokens = max(1, largest // 2)
        self.halvings += 1
        logger.warning("memory ran out: micro-batches of at most %d tokens from now on", self.tokens)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _measure_each(
    tokens: TokenBatch, row_indices: Sequence[Tensor], measure: Callable[[TokenBatch], Sequence[Tensor]]
) -> list[Tensor]:
    full_tensors: list[Tensor] = []
    for rows in row_indices:
        _lay(full_tensors, measure(tokens.rows(rows)), rows, tokens.mask.shape)
    return full_tensors


def _lay(full_tensors: list[Tensor], values: Sequence[Tensor], rows: Tensor, shape: torch.Size) -> None:
    """Copy values (b, t, ...) of some rows into tensors (B, T, ...), created from the first values."""
    if not full_tensors:
        full_tensors += [value.new_zeros(*shape, *value.shape[2:]) for value in values]
    for all_rows, value in zip(
        full_tensors, values, strict=False
    ):  # A rank without rows has measured nothing.
        all_rows[rows.to(value.device), : value.shape[1]] = value
