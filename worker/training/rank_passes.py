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
    def score_without_gradient(self) -> Score:
        """A function that scores rows without gradient, on each rank separately with the whole model."""
        return partial(routed_logprobs, self.policy.model)

    @property
    def score(self) -> Score:
        """A function that scores the rows that learn. All ranks call it together."""
        return self.score_without_gradient if self.shards is None else self.shards

    def local_rows(self, tokens: TokenBatch, is_learning: Tensor) -> Tensor:
        """Return the rows of this rank: its share of the rows that learn and of the other rows."""
        if self.ranks.is_alone:
            return torch.arange(len(tokens))
        sizes = tokens.lengths + tokens.prompt_lengths
        kinds = [(is_learning == learns).nonzero().flatten() for learns in (True, False)]
        return torch.cat([rows[self.ranks.local_rows(sizes[rows])] for rows in kinds])

    def keep_up(
        self, tokens: TokenBatch, pass_count: int, take_gradients: Callable[[], None], temperature: float
    ) -> None:
        """Run passes with gradient 0 to match the number of passes of the other ranks."""
        for _ in range(pass_count):
            token_scores = self.score(tokens.rows(slice(1)), temperature=temperature).scored
            (token_scores.logprobs.sum() * 0).backward()
            take_gradients()

    def open_record(self, step_values: RecordedValues) -> RecordedValues:
        """Return the record for the passes of this rank."""
        return step_values if self.ranks.is_alone else RecordedValues({}, {}, UpdateStats())

    def join(
        self,
        rank_values: RecordedValues,
        rows: Tensor,
        step_values: RecordedValues,
        shape: torch.Size,
        device: torch.device,
    ) -> None:
        """Merge the records of all ranks. `rows` are the rows of the step that this rank computed."""
        if self.ranks.is_alone:
            return
        values, contributions_by_name = (
            {name: value[rows] for name, value in by_name.items()} for by_name in rank_values[:2]
        )
        rank_records = self.ranks.gathered((rows, values, contributions_by_name))
        for rank_rows, per_token, contributions in rank_records:
            keep_tokens(step_values.per_token, per_token, rank_rows, shape)
            keep_tokens(step_values.contributions, contributions, rank_rows, shape)
        step_values.update_stats.sums += self.ranks.merged(rank_values.update_stats.sums).to(device)
