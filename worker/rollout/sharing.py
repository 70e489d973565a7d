"""Completions that still go on, and those among them that share a row of the decoder.

Completions of one prompt that have said the same so far are in the same state: the decoder reads their words
once and forks where they part. A policy that is sure of most tokens decodes a group at little more than
the cost of one completion.
"""

import torch
from torch import Tensor


class UnfinishedRows:
    """The n completions that go on and the decoder rows U <= n that they read."""

    def __init__(self, rows: Tensor, reads: Tensor, *, decoder_rows: int) -> None:
        self._become(rows, reads, decoder_rows)

    def _become(self, rows: Tensor, reads: Tensor, decoder_rows: int) -> None:
        self.rows = rows
        """(n,) indices of the completions in the batch."""
        self.reads = reads
        """(n,) the decoder row of each; ascending, so with a row for each it is 0, 1, 2, ..."""
        self.decoder_rows = decoder_rows
        self.running = torch.ones(len(rows), dtype=torch.bool, device=rows.device)

    @classmethod
    def from_prompts(cls, count: int, group_size: int, device: torch.device) -> "UnfinishedRows":
        """All completions, each reading the row of its prompt."""
        rows = torch.arange(count, device=device)
        return cls(rows, rows // group_size, decoder_rows=count // group_size)

    @property
    def is_shared(self) -> bool:
        """Whether some completions read the same decoder row."""
        return self.decoder_rows < len(self.rows)

    def mark_ended(self, tokens: Tensor, stops: Tensor) -> None:
        """Note which completions have just said a stop token."""
        self.running &= (tokens[:, None] != stops).all(dim=1)

    def regroup(self, tokens: Tensor, *, share: bool) -> tuple[Tensor | None, Tensor]:
        """Leave out what has ended and fork rows whose readers said different tokens.

        Returns the sources for `Decoder.select` (None: all rows stay as they are) and the newest token of
        every decoder row. Without `share` every completion gets a row of its own.
        """
        if not self.is_shared and bool(self.running.all()):
            return None, tokens
        rows, reads, tokens = self.rows[self.running], self.reads[self.running], tokens[self.running]
        # one number for "who read the same and said the same"; as numbers they are ordered by what was read
        keys = (reads << 32) + (tokens if share else rows)
        unique, member = torch.unique(keys, return_inverse=True)
        newest = tokens.new_empty(len(unique)).index_copy_(0, member, tokens)
        sources = unique >> 32
        places = placed(sources)
        order = torch.argsort(places[member], stable=True)
        self._become(rows[order], places[member][order], len(places))
        by_place = torch.argsort(places)
        return sources[by_place], newest[by_place]


def placed(sources: Tensor) -> Tensor:
    """A place 0..U-1 for each of U new rows with ascending sources.

    The first row of a source keeps the source's place if that is below U; all others fill the places left
    over, so few rows of the cache are copied and none is overwritten that another row still needs.

    >>> placed(torch.tensor([0, 0, 2, 5])).tolist()
    [0, 1, 2, 3]
    """
    count = len(sources)
    is_first = torch.ones(count, dtype=torch.bool, device=sources.device)
    is_first[1:] = sources[1:] != sources[:-1]
    stays = is_first & (sources < count)
    is_free = torch.ones(count, dtype=torch.bool, device=sources.device)
    is_free[sources[stays]] = False
    places = torch.empty_like(sources)
    places[stays] = sources[stays]
    places[~stays] = is_free.nonzero().squeeze(1)
    return places
