"""Random batches for property tests of the objective."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st
from torch import Tensor

from backend.config import knobs
from backend.config.objective import Objective
from worker.objective.aggregation import Denominators
from worker.objective.batch import PolicyBatch, require
from worker.objective.estimation import (
    estimate_advantages,
    estimate_against_tokens,
    estimate_token_advantages,
    whiten,
)
from worker.objective.multi_reward import RewardTerms
from worker.objective.policy_loss import accepted_completions, denominators, kl_reward_penalty, policy_loss

NAN = float("nan")
MAX_NEW_TOKENS = 8


@dataclass
class Sample:
    """One optimizer batch with the current log-probabilities and entropies."""

    new_logprobs: Tensor
    entropy: Tensor
    batch: PolicyBatch

    def weights(self, objective: Objective) -> Denominators:
        """Return the weights of the whole optimizer batch."""
        batch = self.batch
        return denominators(
            batch.mask,
            batch.group_index,
            objective,
            max_new_tokens=MAX_NEW_TOKENS,
            correct=batch.correct,
            is_accepted=accepted_completions(batch, objective),
        )

    def gradient(self, objective: Objective, rows: list[Tensor] | None = None) -> tuple[float, Tensor]:
        """Return loss and gradient, summed over micro-batches of the given rows."""
        leaf = self.new_logprobs.clone().requires_grad_()
        weights = self.weights(objective)
        row_sets = [torch.arange(len(leaf))] if rows is None else rows
        losses = [
            policy_loss(
                leaf[part_rows],
                self.batch.rows(part_rows),
                objective,
                weights.rows(part_rows),
                entropy=self.entropy[part_rows],
            ).loss
            for part_rows in row_sets
        ]
        total = torch.stack(losses).sum()
        (gradient,) = torch.autograd.grad(total, leaf)
        return total.item(), gradient

    def with_advantages(self, objective: Objective) -> "Sample":
        """Return the sample with the objective's advantages, computed from its advantages used as rewards."""
        batch = self.batch
        prompts = int(batch.group_index.max()) + 1
        advantage = objective.advantage
        rewards = batch.advantages - kl_reward_penalty(batch, objective).sum(dim=1)
        scored = require(batch.scored, "who was scored")
        if isinstance(advantage, knobs.Critic):
            mask = batch.mask & scored.unsqueeze(1)
            of_tokens = rewards.unsqueeze(1) * torch.ones_like(self.entropy)
            advantages = estimate_token_advantages(of_tokens, self.entropy, mask, advantage).advantages
            return replace(self, batch=replace(batch, mask=mask, advantages=advantages))
        table, is_scored = rewards.view(prompts, -1), scored.view(prompts, -1)
        terms = RewardTerms(
            torch.stack([table, table.sign()]),
            torch.stack([is_scored, is_scored]),
            torch.ones(2, prompts).double(),
        )
        if isinstance(advantage, knobs.OptimalTokenBaseline):
            advantages = estimate_against_tokens(table, is_scored, batch.mask, self.entropy)
            return replace(self, batch=replace(batch, advantages=advantages))
        lengths = batch.mask.sum(dim=1).double().view(prompts, -1)
        greedy_rewards = table.mean(dim=1) / 2
        estimate = estimate_advantages(
            table, is_scored, advantage, terms=terms, lengths=lengths, greedy=greedy_rewards
        )
        values = estimate.advantages.flatten()
        batch = whiten(replace(batch, advantages=values), advantage, scope="step")
        return replace(self, batch=whiten(batch, advantage, scope="minibatch"))


@contextmanager
def preserve_random_state() -> Iterator[None]:
    """Keep the type checks of a batch from using Python's random state, which a strategy must not."""
    state = random.getstate()
    yield
    random.setstate(state)


@preserve_random_state()
def draw_sample(seed: int, *, prompts: int, group: int, width: int, spread: float) -> Sample:
    """Return log-probabilities around an exponential, drifted by `spread` nats, some of them empty."""
    generator = torch.Generator().manual_seed(seed)
    shape = (prompts * group, width)
    lengths = torch.randint(0, width + 1, (shape[0], 1), generator=generator)
    mask = torch.arange(width) < lengths
    old_logprobs = torch.rand(shape, generator=generator, dtype=torch.float64).log() - 0.01

    def draw_near() -> Tensor:
        drift = spread * torch.randn(shape, generator=generator, dtype=torch.float64)
        return (old_logprobs + drift).where(mask, NAN)

    return Sample(
        new_logprobs=draw_near(),
        entropy=torch.rand(shape, generator=generator, dtype=torch.float64).where(mask, NAN),
        batch=PolicyBatch(
            mask=mask,
            advantages=torch.randn(shape[0], generator=generator, dtype=torch.float64),
            group_index=torch.arange(prompts).repeat_interleave(group),
            old_logprobs=old_logprobs.where(mask, NAN),
            sampler_logprobs=draw_near(),
            reference_logprobs=draw_near(),
            router_shift=-(draw_near() - old_logprobs).abs(),
            trained=torch.rand(shape, generator=generator) < 0.7,
            entropy_coef=torch.rand(shape[0], generator=generator, dtype=torch.float64),
            uncertain=torch.rand(shape, generator=generator) < 0.5,
            covariant=torch.rand(shape, generator=generator) < 0.2,
            correct=torch.rand(shape[0], generator=generator) < 0.5,
            scored=torch.rand(shape[0], generator=generator) < 0.9,
        ),
    )


def samples(*, spread: float = 0.4) -> st.SearchStrategy[Sample]:
    return st.builds(
        draw_sample,
        st.integers(0, 2**31),
        prompts=st.integers(1, 3),
        group=st.integers(1, 4),
        width=st.integers(1, 6),
        spread=st.just(spread),
    )
