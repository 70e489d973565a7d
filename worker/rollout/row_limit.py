"""Limit the number of rows that a sampler decodes at once, and halve it if memory runs out."""

import logging
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch

from worker.out_of_memory import is_memory_error

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class RowLimit:
    """The maximum number of rows at once, shared by all samplers of a run. 0 means as many rows as fit."""

    def __init__(self, rows: int = 0) -> None:
        self.rows = rows
        self.halvings = 0
        """Number of times that memory ran out."""

    def run(
        self, total: int, group_size: int, *, limit: int, compute: Callable[[int, int], Result]
    ) -> Iterator[Result]:
        """Call `work(first, last)` on consecutive rows: whole groups, or parts of a single group.

        Starts with `limit` rows at once, if no lower limit has been found. If memory runs out, the same rows
        are repeated with half as many at once. Raises the error if a single row does not fit.
        """
        first = 0
        while first < total:
            last = _end(first, total, group_size, rows=min(self.rows or limit, limit))
            try:
                result = compute(first, last)
            except Exception as error:
                if not is_memory_error(error) or last - first < 2:
                    raise
            else:
                yield result
                first = last
                continue
            # Halve here, because no traceback holds the tensors of the failed rows any more.
            self._halve(last - first)

    def lower(self, rows: int) -> bool:
        """Apply a limit that was found before or by another rank, or none if it is 0.

        Return whether the limit is lower than before.
        """
        previous_rows, self.rows = self.rows, min(self.rows or rows, rows or self.rows)
        return self.rows != previous_rows

    def _halve(self, rows: int) -> None:
        self.rows = rows // 2
        self.halvings += 1
        logger.warning("memory ran out: at most %d completions are sampled at once from now on", self.rows)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _end(first: int, total: int, group_size: int, *, rows: int) -> int:
    """Return the end of the rows to process from `first` on: the end of a group, or a row within it."""
    if first % group_size == 0 and rows >= group_size:
        return min(total, first + rows // group_size * group_size)
    return min(first + max(1, rows), (first // group_size + 1) * group_size)
