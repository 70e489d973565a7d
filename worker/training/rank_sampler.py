"""Sampling on several ranks. Each rank samples some of the prompts, with the same result as a single
sampler.
"""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from worker.policy.model import Policy
from worker.policy.ranks import Ranks
from worker.prompt import Prompt
from worker.rollout.engine import Interrupted, SamplingLike
from worker.rollout.row_limit import RowLimit
from worker.rollout.sampler import Decoding, Sampler
from worker.training.replica import Replica
from worker.types import Completion

Order = Callable[..., None]

SHARED_ARGUMENTS = ("keep_mask", "routes", "alternatives", "version")
"""Names of the sampler's arguments that all ranks share."""

_numbers = count(1)


class Task(NamedTuple):
    """A batch of completions that all ranks sample together."""

    prompts: Sequence[Prompt]
    group_size: int
    decoding: Decoding
    generator: Tensor
    """State of the random generator before the call."""
    beginnings: Sequence[Sequence[int]]
    knobs: dict[str, Any]
    """Values of SHARED_ARGUMENTS for the sampler."""
    rows: int = 0
    """Largest number of completions at once that fits on a rank, or 0 if memory never ran out."""
    number: int = 0
    """Number of the call, from 1."""


class ShareSampler(Sampler):
    """Samples some of the rows of a call with the same random numbers as in the complete call."""

    rows_of_call = 0
    first_row = 0

    def _uniforms(self, tokens: int, rows: int, generator: torch.Generator) -> Tensor:
        uniforms = super()._uniforms(tokens, self.rows_of_call, generator)
        return uniforms[:, self.first_row : self.first_row + rows].contiguous()


class RankSampler(Sampler):
    """The sampler of rank 0, which distributes sampling among all ranks."""

    order: Order
    """Function that sends an order to the other ranks."""
    ranks: Ranks

    def sample(
        self,
        prompts: Sequence[Prompt],
        group_size: int,
        sampling: SamplingLike,
        generator: torch.Generator,
        *,
        beginnings: Sequence[Sequence[int]] = (),
    ) -> list[list[Completion]]:
        """See Sampler."""
        for prompt, beginning in zip(prompts, beginnings or [()] * len(prompts), strict=True):
            self.policy.encode(
                prompt, room=len(beginning) + sampling.max_new_tokens
            )  # raises for a prompt that is refused
        task = Task(
            prompts,
            group_size,
            Decoding(sampling.max_new_tokens, sampling.temperature, sampling.top_p, sampling.top_k),
            generator.get_state(),
            beginnings,
            {name: getattr(self, name) for name in SHARED_ARGUMENTS},
            self.limit.rows,
            next(_numbers),
        )
        self.order("sample", task)
        return sample_together(
            task, self.policy, self.ranks, generator, limit=self.limit, is_unwanted=self.is_unwanted
        )


def sampler_factory(replica: Replica) -> Callable[..., Sampler]:
    """Return a function that creates the samplers of a run on several ranks.

    Only the current weights exist on all ranks, so a sampler of older weights works alone.
    """

    def make(policy: Policy, **knobs: Any) -> Sampler:
        if policy is not replica.policy:
            return Sampler(policy, **knobs)
        sampler = RankSampler(policy, **knobs)
        sampler.order, sampler.ranks = replica.order, replica.ranks
        return sampler

    return make


def rank_store() -> Any:
    """Return the store through which the ranks have met."""
    return dist.distributed_c10d._get_default_store()  # noqa: SLF001 - torch has no public name for it


def shared_cancellation(
    store: Any, ranks: Ranks, number: int, is_unwanted: Callable[[], bool]
) -> Callable[[], bool]:
    """Return a function that returns whether a call is cancelled. Rank 0 decides and notifies the others."""
    note = f"unwanted/{number}"

    def is_over() -> bool:
        if ranks.rank:
            return bool(store.check([note]))
        if is_cancelled := is_unwanted():
            store.set(note, "1")
        return is_cancelled

    return is_over


def sample_together(
    task: Task,
    policy: Policy,
    ranks: Ranks,
    generator: torch.Generator,
    *,
    limit: RowLimit,
    is_unwanted: Callable[[], bool] = lambda: False,
) -> list[list[Completion]]:
    """Return the completions of all ranks, in the order of the prompts, and advance `generator`.

    The lowest row limit of any rank applies to all ranks from the next call on.
    """
    limit.lower(task.rows)
    prompts = len(task.prompts)
    first, last = (prompts * rank // ranks.size for rank in (ranks.rank, ranks.rank + 1))
    is_over = (
        is_unwanted if ranks.is_alone else shared_cancellation(rank_store(), ranks, task.number, is_unwanted)
    )
    sampler = ShareSampler(policy, limit=limit, is_unwanted=is_over, **task.knobs)
    sampler.rows_of_call, sampler.first_row = prompts * task.group_size, first * task.group_size
    rank_prompts = task.prompts[first:last]
    completions: list[list[Completion]] | None = []
    try:
        if rank_prompts:
            completions = sampler.sample(
                rank_prompts,
                task.group_size,
                task.decoding,
                generator,
                beginnings=task.beginnings[first:last],
            )
        else:
            sampler._uniforms(task.decoding.max_new_tokens, 0, generator)  # noqa: SLF001 - advances it
    except Interrupted:
        completions = None
    rank_results = ranks.gathered((completions, limit.rows), is_patient=True)
    groups_by_rank = [rank_groups for rank_groups, _ in rank_results]
    limit.halvings += limit.lower(min((rows for _, rows in rank_results if rows), default=0))
    if any(rank_groups is None for rank_groups in groups_by_rank):
        raise Interrupted
    return [group for rank_groups in groups_by_rank for group in rank_groups]
