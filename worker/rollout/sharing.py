"""Unfinished completions and the decoder rows that they share.

Completions of one prompt with the same tokens so far are in the same state. The decoder processes these
tokens once and forks the row if the completions diverge. If the policy is certain of most tokens, a group
costs little more than one completion.
"""

import torch
from torch import Tensor


class UnfinishedRows:
    """The n unfinished completions and the U <= n decoder rows that they use."""

    def __init__(self, rows: Tensor, source_rows: Tensor, *, decoder_rows: int) -> None:
        self._become(rows, source_rows, decoder_rows)

    def _become(self, rows: Tensor, source_rows: Tensor, decoder_rows: int) -> None:
        self.rows = rows
        """Indices of the completions in the batch, (n,)."""
        self.source_rows = source_rows
        """Decoder row of each completion, (n,), ascending. Without sharing it is 0, 1, 2, ..."""
        self.decoder_rows = decoder_rows
        self.is_running = torch.ones(len(rows), dtype=torch.bool, device=rows.device)

    @classmethod
    def from_prompts(cls, count: int, group_size: int, device: torch.device) -> "UnfinishedRows":
        """Return all completions, each using the row of its prompt."""
        rows = torch.arange(count, device=device)
        return cls(rows, rows // group_size, decoder_rows=count // group_size)

    @property
    def is_shared(self) -> bool:
        """True if some completions use the same decoder row."""
        return self.decoder_rows < len(self.rows)

    def mark_ended(self, tokens: Tensor, stops: Tensor) -> None:
        """Mark the completions that have just sampled a stop token."""
        self.is_running &= (tokens[:, None] != stops).all(dim=1)

    def regroup(self, tokens: Tensor, *, share: bool) -> tuple[Tensor | None, Tensor]:
        """Remove ended completions and fork rows whose completions sampled different tokens.

        Return the sources for `Decoder.select`, or None if all rows stay unchanged, and the newest token of
        every decoder row. Without `share` every completion gets a separate row.
        """
        if not self.is_shared and bool(self.is_running.all()):
            return None, tokens
        rows, source_rows, tokens = (
            self.rows[self.is_running],
            self.source_rows[self.is_running],
            tokens[self.is_running],
        )
        # one number per pair (decoder row, sampled token), ordered by decoder row
        keys = (source_rows << 32) + (tokens if share else rows)
        unique_keys, member_indices = torch.unique(keys, return_inverse=True)
        newest_tokens = tokens.new_empty(len(unique_keys)).index_copy_(0, member_indices, tokens)
        sources = unique_keys >> 32
        new_indices = assign_places(sources)
        order = torch.argsort(new_indices[member_indices], stable=True)
        self._become(rows[order], new_indices[member_indices][order], len(new_indices))
        order_by_index = torch.argsort(new_indices)
        return sources[order_by_index], newest_tokens[order_by_index]


def assign_places(sources: Tensor) -> Tensor:
    """Return an index 0..U-1 for each of U new rows with ascending sources.

    The first row of a source keeps the source's index if that is below U. All other rows get the remaining
    indices, so few rows of the cache are copied and no row is overwritten that another row still needs.

    >>> assign_places(torch.tensor([0, 0, 2, 5])).tolist()
    [0, 1, 2, 3]
    """
    count = len(sources)
    is_first = torch.ones(count, dtype=torch.bool, device=sources.device)
    is_first[1:] = sources[1:] != sources[:-1]
    keeps_index = is_first & (sources < count)
    is_free = torch.ones(count, dtype=torch.bool, device=sources.device)
    is_free[sources[keeps_index]] = False
    indices = torch.empty_like(sources)
    indices[keeps_index] = sources[keeps_index]
    indices[~keeps_index] = is_free.nonzero().squeeze(1)
    return indices
