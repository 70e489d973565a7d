"""The passes of an update that one rank runs, and the merged statistics of all ranks."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from worker.policy.model import Policy
from worker.policy.ranks import ALONE, Ranks
from worker.policy.routing import routed_logprobs
from worker.policy.shards import ShardedModel
from worker.policy.token_batch import TokenBatch
from worker.training.passes import RecordedValues, Score
from worker.training.update_stats import UpdateStats, keep_tokens


@dataclass(frozen=True, slots=True)
class RankPasses:
    """Splits updates among the ranks; a single rank runs all passes itself."""

    policy: Policy
    shards: ShardedModel | None = None

    @property
    def ranks(self) -> Ranks:
        """The ranks that share the passes."""
        return ALONE if self.shards is None else self.shards.ranks

    @property
    def silent(self) -> Score:
        """A function that scores rows without gradient, on each rank separately with the whole model."""
        return partial(routed_logprobs, self.policy.model)

    @property
    def score(self) -> Score:
        """A function that scores the rows that learn. All ranks call it together."""
        return self.silent if self.shards is None else self.shards

    def own(self, tokens: TokenBatch, learning: Tensor) -> Tensor:
        """Return the rows of this rank: its share of the rows that learn and of the other rows."""
        if self.ranks.is_alone:
            return torch.arange(len(tokens))
        sizes = tokens.lengths + tokens.prompt_lengths
        kinds = [(learning == learns).nonzero().flatten() for learns in (True, False)]
        return torch.cat([rows[self.ranks.own(sizes[rows])] for rows in kinds])

    def keep_up(self, tokens: TokenBatch, missing: int, take: Callable[[], None], temperature: float) -> None:
        """Run passes with gradient 0 to match the number of passes of the other ranks."""
        for _ in range(missing):
            token_scores = self.score(tokens.rows(slice(1)), temperature=temperature).scored
            (token_scores.logprobs.sum() * 0).backward()
            take()

    def begin(self, seen: RecordedValues) -> RecordedValues:
        """Return the record for the passes of this rank."""
        return seen if self.ranks.is_alone else RecordedValues({}, {}, UpdateStats())

    def join(
        self,
        mine: RecordedValues,
        rows: Tensor,
        seen: RecordedValues,
        shape: torch.Size,
        device: torch.device,
    ) -> None:
        """Merge the records of all ranks. `rows` are the rows of the step that this rank computed."""
        if self.ranks.is_alone:
            return
        values, contributions_by_name = (
            {name: value[rows] for name, value in by_name.items()} for by_name in mine[:2]
        )
        rank_records = self.ranks.gathered((rows, values, contributions_by_name))
        for rank_rows, per_token, contributions in rank_records:
            keep_tokens(seen.per_token, per_token, rank_rows, shape)
            keep_tokens(seen.added, contributions, rank_rows, shape)
        seen.update_stats.sums += self.ranks.merged(mine.update_stats.sums).to(device)
