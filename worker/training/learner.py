"""The learner converts the groups of a step into optimizer steps on the policy."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from backend.config import knobs
from backend.config.filters import NoRefill
from backend.config.length import MaskTruncated
from backend.config.run import RunConfig
from worker.objective import filters
from worker.objective.advantages import moving_average
from worker.objective.aggregation import Denominators
from worker.objective.batch import PolicyBatch, require
from worker.objective.estimation import estimate_advantages, estimate_against_tokens, whiten
from worker.objective.metric_sums import Mean, MetricSums
from worker.objective.policy_loss import (
    PolicyLoss,
    accepted_completions,
    denominators,
    kl_reward_penalty,
)
from worker.objective.token_choice import choose_covariant_tokens, split_updates
from worker.policy.microbatches import Microbatches
from worker.policy.model import Policy
from worker.policy.optimizer import PolicyOptimizer
from worker.policy.packing import is_packed
from worker.policy.shards import ShardedModel
from worker.policy.token_batch import TokenBatch
from worker.rollout.collector import CollectedGroups, greedy_rewards, reward_tensors, reward_terms
from worker.state import Stateful
from worker.training.batch_builder import BatchBuilder, completion_domains, entropies
from worker.training.controllers import EntropyControl, KlControl
from worker.training.critic_step import CriticEstimate, CriticStep
from worker.training.passes import (
    MicroBatch,
    OptimizerBatch,
    RecordedValues,
    learning_rows,
    loss_passes,
    separate_microbatches,
)
from worker.training.prompt_history import PromptHistory, group_repeats
from worker.training.rank_passes import RankPasses
from worker.training.trust_region import step_metrics, trust_region_step
from worker.training.update_stats import (
    UpdateStats,
    add_tokens,
    completion_advantages,
    constant_values,
    lift_rows,
    split_by_completion,
    token_use,
)
from worker.types import Group

LIFT_EVERY_STEPS = 10
"""Number of steps between two measurements of policy/lift_*, which need a forward pass."""


class LossShares(NamedTuple):
    """Factors on the means of the loss that account for groups that were left out and not replaced."""

    groups: float = 1.0
    """Factor on means over completions or prompts."""
    tokens: float = 1.0
    """Factor on a mean over sampled tokens."""


@dataclass(slots=True)
class Baseline:
    """Moving reward average that the `ema` baseline subtracts; 0 with any other baseline."""

    average: float = 0.0
    step_rewards: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    """Rewards of the step so far, with masks of the scored completions."""

    def move(self, advantage: knobs.Advantage) -> None:
        """Update the average with the rewards of the whole step."""
        if isinstance(advantage, knobs.MovingAverage) and self.step_rewards:
            rewards, has_reward = (torch.cat(tensors) for tensors in zip(*self.step_rewards, strict=True))
            self.average = moving_average(self.average, rewards, has_reward, decay=advantage.decay)
        self.step_rewards.clear()

    def values(self) -> dict[str, Any]:
        """See Stateful."""
        return {"average": self.average}

    def tensors(self) -> dict[str, Tensor]:
        """See Stateful."""
        return {}

    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:  # noqa: ARG002
        """See Stateful."""
        self.average = values["average"]


class Learner:
    """Updates the policy's weights in each step. `parts` is the state that it carries between steps."""

    def __init__(
        self,
        config: RunConfig,
        policy: Policy,
        optimizer: PolicyOptimizer,
        reference: Policy | None,
        *,
        allow_writes: Callable[[], AbstractContextManager[None]] = nullcontext,
        shards: ShardedModel | None = None,
        announce_critic: Callable[[], None] = lambda: None,
    ) -> None:
        """Create the learner.

        The context `allow_writes` is entered while gradients are computed, because that runs outside the
        interpreter. With `shards` of the policy, every rank calls the same methods with the same arguments.
        """
        self.config, self.policy, self.optimizer, self.allow_writes = config, policy, optimizer, allow_writes
        self.baseline = Baseline()
        self.history = PromptHistory()
        self.kl = KlControl(config.objective)
        self.entropy = EntropyControl(config.objective)
        self.parts: dict[str, Stateful] = {
            "baseline": self.baseline,
            "history": self.history,
            **self.kl.parts,
            **self.entropy.parts,
        }
        self.ranks = RankPasses(policy, shards)
        self.microbatches = Microbatches(
            config.resources, is_packed=is_packed(policy.model), ranks=self.ranks.ranks
        )
        self.critic_step = CriticStep.from_config(policy, config, self.microbatches, announce_critic)
        if self.critic_step is not None:
            self.parts["critic"] = self.critic_step.critic
        objective = config.objective
        is_plain = objective.ratio.logprob_temperature == "one"
        self.temperature = 1.0 if is_plain else config.sampling.temperature
        self.old_policy = BatchBuilder(config, policy, reference, self.temperature, self.microbatches)

    def learn(
        self,
        collected: CollectedGroups,
        generator: torch.Generator,
        update_stats: UpdateStats,
        *,
        old_policy: Policy | None = None,
    ) -> None:
        """Train on the groups that passed the filters, and add statistics to `update_stats`.

        `old_policy` is the policy at the start of the step, if it differs from the current one.
        """
        groups = collected.training
        if not groups:
            return
        started_at = time.perf_counter()
        tokens = self.old_policy.tokens(groups)
        batch, estimate = self._open(tokens, groups, update_stats, old_policy=old_policy)
        per_token: dict[str, Tensor] = {}
        if self.critic_step is None or not self.critic_step.is_pretraining(update_stats.step):
            self.entropy.observe(entropies(groups, tokens).cpu(), batch.mask.cpu())
            batch = self._updates(tokens, batch, collected, generator, per_token, update_stats)
            if update_stats.step % LIFT_EVERY_STEPS == 0:
                update_stats.sums += self._lift(tokens, batch, groups, per_token)
            per_token |= constant_values(batch)
        if estimate is not None:
            self._fit_critic(estimate, len(groups), generator, update_stats)
            per_token |= {"advantage": estimate.advantages.cpu(), "value": estimate.values.old_values.cpu()}
        lengths = tokens.lengths.tolist()
        update_stats.token_use += token_use(per_token, batch.mask.cpu(), lengths, len(groups))
        per_token.pop("policy_gradient", None)
        update_stats.advantages += completion_advantages(batch).view(len(groups), -1).tolist()
        update_stats.arrays += split_by_completion(per_token, lengths, len(groups))
        update_stats.seconds += time.perf_counter() - started_at

    def end_step(self) -> None:
        """Update the state that depends on the whole step; call it once, after the step's last epoch."""
        self.kl.move()
        self.entropy.move()
        self.baseline.move(self.config.objective.advantage)

    def _updates(
        self,
        tokens: TokenBatch,
        batch: PolicyBatch,
        collected: CollectedGroups,
        generator: torch.Generator,
        per_token: dict[str, Tensor],
        update_stats: UpdateStats,
    ) -> PolicyBatch:
        """Run the policy's updates and return the batch with the applied advantages."""
        applied_advantages, shares = batch.advantages.clone(), self._loss_shares(collected)
        groups = len(collected.trained)
        epochs = 1 if self.config.updates.resample_each_epoch else self.config.updates.epochs
        for _ in range(epochs):
            for rows in self._minibatches(groups, generator):
                device_rows = rows.to(batch.mask.device)
                minibatch = whiten(
                    batch.rows(device_rows), self.config.objective.advantage, scope="minibatch"
                )
                applied_advantages[device_rows] = minibatch.advantages
                minibatch = choose_covariant_tokens(minibatch, self.config.objective.surrogate, generator)
                for update in split_updates(minibatch, self.config.objective.token_weight):
                    norm = self._update(tokens, update, rows, per_token, update_stats, shares)
                    update_stats.norms.append(norm)
        if "kl" in per_token:
            self.kl.observe(per_token["kl"], batch.mask.cpu())
        return replace(batch, advantages=applied_advantages)

    def _lift(
        self, tokens: TokenBatch, batch: PolicyBatch, groups: Sequence[Group], per_token: dict[str, Tensor]
    ) -> MetricSums:
        """Return policy/lift_*: the change of the log-probabilities of a few correct and incorrect
        completions.

        The completions come from the first group that has both kinds, at most one of each kind per 64
        completions of the batch, because they need a forward pass.
        """
        correct_rows, incorrect_rows = lift_rows(groups)
        rows = torch.tensor(correct_rows + incorrect_rows, dtype=torch.long)
        if not len(rows) or "policy_logprob" not in per_token:
            return MetricSums()
        old_logprobs = per_token["policy_logprob"] if batch.old_logprobs is None else batch.old_logprobs.cpu()
        lift_tokens = tokens.rows(rows)
        new_logprobs = self.old_policy.logprobs(lift_tokens).cpu()
        mask = lift_tokens.mask.cpu()
        logprob_changes = (new_logprobs - old_logprobs[rows, : mask.shape[1]]).masked_fill(~mask, 0)
        kinds = {"right": slice(len(correct_rows)), "wrong": slice(len(correct_rows), None)}
        return MetricSums(
            {
                f"policy/lift_{kind}": Mean(logprob_changes[span].sum(), mask[span].sum())
                for kind, span in kinds.items()
            }
        )

    def _loss_shares(self, collected: CollectedGroups) -> LossShares:
        rule, trained, total = self.config.filters, len(collected.trained), len(collected.groups)
        if not isinstance(rule.refill, NoRefill):
            return LossShares()
        factor = filters.upweight(trained_count=trained, total=total) if rule.upweight else 1.0
        tokens = filters.loss_share(
            trained_count=self._loss_tokens(collected.training), total=self._loss_tokens(collected.groups)
        )
        return LossShares(filters.loss_share(trained_count=trained, total=total) * factor, tokens * factor)

    def _loss_tokens(self, groups: Iterable[Group]) -> int:
        """Return the number of tokens that the loss of these groups may use."""
        completions = [completion for group in groups for completion in group.completions]
        masks_truncated = isinstance(self.config.length.truncated, MaskTruncated)
        return sum(
            completion.written_tokens
            for completion in completions
            if not (masks_truncated and completion.is_truncated)
        )

    def _fit_critic(
        self, estimate: CriticEstimate, groups: int, generator: torch.Generator, update_stats: UpdateStats
    ) -> None:
        if self.critic_step is None:
            return
        started_at = time.perf_counter()
        fitted = self.critic_step.fit(
            estimate, lambda: self._minibatches(groups, generator), step=update_stats.step
        )
        update_stats.sums += fitted.sums
        update_stats.critic_norms += fitted.norms
        update_stats.estimate = estimate.metrics
        update_stats.critic_seconds += time.perf_counter() - started_at

    def _open(
        self,
        tokens: TokenBatch,
        groups: Sequence[Group],
        update_stats: UpdateStats,
        *,
        old_policy: Policy | None,
    ) -> tuple[PolicyBatch, CriticEstimate | None]:
        """Return the batch of the whole step with advantages, and the critic's estimate or None."""
        batch = self._set_coefficients(
            self.old_policy.batch(tokens, groups, update_stats, old_policy=old_policy), tokens, groups
        )
        rewards, has_reward = reward_tensors([group.rewards for group in groups])
        batch = replace(batch, scored=has_reward.flatten().to(batch.mask.device))
        penalty = kl_reward_penalty(batch, self.config.objective)
        if self.critic_step is not None:
            estimate = self.critic_step.judge(tokens, batch, rewards, penalty, step=update_stats.step)
            return replace(batch, advantages=estimate.advantages), estimate
        rewards -= penalty.sum(dim=1).cpu().double().view(rewards.shape)
        if isinstance(self.config.objective.advantage, knobs.OptimalTokenBaseline):
            return self._against_tokens(tokens, batch, rewards, has_reward, old_policy), None
        return self._compare_completions(groups, batch, rewards, has_reward), None

    def _set_coefficients(
        self, batch: PolicyBatch, tokens: TokenBatch, groups: Sequence[Group]
    ) -> PolicyBatch:
        """Return the batch with the loss coefficients of this step."""
        device = batch.mask.device
        kl_coef = self.kl.coefficients(completion_domains(groups))
        entropy_coef = self.entropy.weights(entropies(groups, tokens).cpu(), batch.mask.cpu())
        return replace(
            batch,
            kl_coef=None if kl_coef is None else kl_coef.to(device),
            entropy_coef=None if entropy_coef is None else entropy_coef.to(device),
        )

    def _against_tokens(
        self,
        tokens: TokenBatch,
        batch: PolicyBatch,
        rewards: Tensor,
        scored: Tensor,
        old_policy: Policy | None,
    ) -> PolicyBatch:
        """Return the batch with an advantage for each token, from all rewards (P, G) of the step."""
        energies = self.old_policy.energies(tokens, old_policy)
        token_advantages = estimate_against_tokens(rewards, scored, batch.mask, energies)
        return replace(batch, advantages=token_advantages.float())

    def _compare_completions(
        self, groups: Sequence[Group], batch: PolicyBatch, rewards: Tensor, scored: Tensor
    ) -> PolicyBatch:
        """Return the batch with one advantage for each completion, from all rewards (P, G) of the step."""
        advantage = self.config.objective.advantage
        if isinstance(advantage, knobs.Critic | knobs.OptimalTokenBaseline):
            raise TypeError(f"{advantage.type} judges tokens")
        self.baseline.step_rewards.append((rewards, scored))
        if isinstance(advantage.scale, knobs.Sas):
            advantages = self._smooth_advantages(
                [group.prompt.id for group in groups], rewards, scored, advantage
            )
        else:
            advantages = estimate_advantages(
                rewards,
                scored,
                advantage,
                average=self.baseline.average,
                terms=reward_terms(groups),
                lengths=batch.mask.sum(dim=1).cpu().to(rewards).view(rewards.shape),
                greedy=greedy_rewards(groups),
            ).advantages
        values = advantages.flatten().float().to(batch.mask.device)
        return whiten(replace(batch, advantages=values), advantage, scope="step")

    def _smooth_advantages(
        self, prompts: Sequence[str], rewards: Tensor, scored: Tensor, advantage: knobs.RewardAdvantage
    ) -> Tensor:
        """Return advantages (P, G) based on each prompt's history; a repeated prompt has one more visit."""
        advantages = torch.zeros_like(rewards)
        for rows in group_repeats(prompts):
            ids = [prompts[row] for row in rows]
            estimate = estimate_advantages(
                rewards[rows], scored[rows], advantage, visits=self.history.visits(ids)
            )
            advantages[rows] = estimate.advantages
            self.history.remember(ids, require(estimate.visits, "visits"))
        return advantages

    def _minibatches(self, groups: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Yield the rows of each optimizer batch: whole groups, shuffled if there are several batches."""
        batch_count = min(self.config.updates.minibatches, groups)
        order = torch.randperm(groups, generator=generator) if batch_count > 1 else torch.arange(groups)
        size = self.config.sampling.group_size
        for group_indices in order.tensor_split(batch_count):
            yield (group_indices.unsqueeze(1) * size + torch.arange(size)).flatten()

    def _update(
        self,
        tokens: TokenBatch,
        batch: PolicyBatch,
        rows: Tensor,
        per_token: dict[str, Tensor],
        update_stats: UpdateStats,
        shares: LossShares,
    ) -> float:
        """Take one optimizer step on some rows of `tokens`, for which `batch` holds the inputs of the loss.

        Return the gradient norm. If it is not finite, the step was skipped.
        """
        optimizer_batch = OptimizerBatch(tokens, rows, batch, self._denominators(batch, shares))
        sums_before = update_stats.sums
        added_values: dict[str, Tensor] = {}
        learning = learning_rows(batch, self.config.objective)
        rank_rows = self.ranks.local_rows(tokens.rows(rows), learning)
        recorded_values = self.ranks.open_record(
            step_values := RecordedValues(per_token, added_values, update_stats)
        )

        def undo() -> None:
            self.optimizer.forget_gradients()
            update_stats.sums = sums_before
            added_values.clear()

        def passes(row_indices: Sequence[Tensor]) -> float:
            if self.config.updates.rule == "natural_gradient":
                return self._natural_update(optimizer_batch, row_indices, recorded_values)
            rank_microbatches = separate_microbatches(
                [rank_rows[indices] for indices in row_indices], learning
            )
            passes_that_learn = sum(microbatch.learns for microbatch in rank_microbatches)
            missing_passes = self.ranks.ranks.limit(passes_that_learn) - passes_that_learn
            for pass_loss in self._passes(optimizer_batch, rank_microbatches, recorded_values):
                if not pass_loss.loss.requires_grad:
                    continue
                with self.allow_writes():
                    pass_loss.loss.backward()
                self.optimizer.take_gradients()
            self.ranks.keep_up(tokens, missing_passes, self.optimizer.take_gradients, self.temperature)
            return math.nan

        norm = self.microbatches.run(tokens.rows(rows[rank_rows]), passes, undo)
        self.ranks.join(recorded_values, rows[rank_rows], step_values, tokens.mask.shape, batch.mask.device)
        if self.config.updates.rule == "adam":
            update = self.optimizer.step(update_stats.step)
            update_stats.lr, norm = update.lr, update.grad_norm
        if not math.isfinite(norm):
            added_values.pop("policy_gradient", None)
        add_tokens(per_token, added_values, tokens.mask.shape)
        return norm

    def _passes(
        self,
        optimizer_batch: OptimizerBatch,
        microbatches: Sequence[MicroBatch],
        recorded_values: RecordedValues | None,
    ) -> Iterator[PolicyLoss]:
        return loss_passes(
            self.ranks.score,
            optimizer_batch,
            microbatches,
            self.config.objective,
            temperature=self.temperature,
            recorded_values=recorded_values,
            score_without_gradient=self.ranks.score_without_gradient,
        )

    def _natural_update(
        self, optimizer_batch: OptimizerBatch, row_indices: Sequence[Tensor], recorded_values: RecordedValues
    ) -> float:
        """Take one step inside the trust region. Only the first pass over the tokens is recorded."""
        pending_record = [recorded_values]

        def surrogate() -> Iterator[Tensor]:
            pass_record = pending_record.pop() if pending_record else None
            for pass_loss in self._passes(
                optimizer_batch, [MicroBatch(indices) for indices in row_indices], pass_record
            ):
                yield -pass_loss.loss

        step = trust_region_step(
            self.policy.model,
            optimizer_batch.tokens.rows(optimizer_batch.rows),
            optimizer_batch.batch.mask,
            surrogate,
            temperature=self.temperature,
            trust=self.config.updates.trust,
            row_indices=row_indices,
        )
        recorded_values.update_stats.sums += step_metrics(step)
        recorded_values.update_stats.failed_searches += step.is_failed and math.isfinite(step.grad_norm)
        return step.grad_norm

    def _denominators(self, batch: PolicyBatch, shares: LossShares) -> Denominators:
        objective = self.config.objective
        return denominators(
            batch.mask,
            batch.group_index,
            objective,
            max_new_tokens=self.config.sampling.max_new_tokens,
            loss_share=shares.groups,
            token_share=shares.tokens,
            correct=batch.correct,
            is_accepted=accepted_completions(batch, objective),
        )
