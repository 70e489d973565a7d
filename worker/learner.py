"""From the groups of a step to optimizer steps on the policy."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import torch
from torch import Tensor

from backend.config import knobs
from backend.config.run import MaskTruncated, RunConfig
from worker.objective import filters
from worker.objective.aggregation import Denominators
from worker.objective.batch import PolicyBatch
from worker.objective.estimation import estimate_advantages, whiten
from worker.objective.metric_sums import Mean, MetricSums
from worker.objective.policy_loss import PolicyLoss, denominators, kl_reward_penalty, policy_loss
from worker.objective.router import router_metrics, with_router_shift
from worker.objective.token_choice import updates_of, with_token_choice
from worker.policy.logprobs import TokenLogprobs
from worker.policy.model import Policy
from worker.policy.optimizer import PolicyOptimizer
from worker.policy.routing import replayed_experts, routed_logprobs
from worker.prompt_history import PromptHistory
from worker.rollout.batching import TokenBatch, microbatches, padded, token_batch
from worker.rollout.collector import Collected, reward_terms, tensors
from worker.rollout.types import Group
from worker.state import Stateful
from worker.steering import EntropyControl, KlControl
from worker.trust_region import metrics_of, trust_region_step
from worker.valuation import Judged, Valuation

Arrays = dict[str, np.ndarray]


@dataclass(slots=True)
class Learned:
    """What the updates of a step did."""

    step: int = 0
    """The training step; decides the learning rate."""
    lr: float | None = None
    """Learning rate of the policy's updates, where they have one."""
    sums: MetricSums = field(default_factory=MetricSums)
    """The objective's metrics over all updates."""
    advantages: list[list[float]] = field(default_factory=list)
    """[P][G] advantage of each completion."""
    arrays: list[list[Arrays]] = field(default_factory=list)
    """[P][G] per-token values of each completion at its last update: ratio, clipped, kl, ..."""
    norms: list[float] = field(default_factory=list)
    """Gradient norm of each update; one that is not finite was skipped."""
    critic_norms: list[float] = field(default_factory=list)
    """The same of the critic's updates."""
    judged: dict[str, float] = field(default_factory=dict)
    """What the critic's judgement looks like."""
    seconds: float = 0.0
    reference_seconds: float = 0.0
    critic_seconds: float = 0.0

    @property
    def skipped(self) -> int:
        """Updates left out because loss or gradient was not finite, the critic's among them."""
        return sum(not math.isfinite(norm) for norm in (*self.norms, *self.critic_norms))

    @property
    def is_stuck(self) -> bool:
        """Whether there were updates of the policy and all of them were left out."""
        return bool(self.norms) and not any(math.isfinite(norm) for norm in self.norms)

    def metrics(self) -> dict[str, float]:
        """The step's numbers; only that there was no update when there was nothing to learn from."""
        counts = {
            "optim/updates": sum(math.isfinite(norm) for norm in self.norms),
            "optim/skipped": self.skipped,
        }
        if not self.norms:
            return self.sums.values() | self.judged | counts
        flat = [value for group in self.advantages for value in group]
        return {
            "advantage/mean": fmean(flat),
            "advantage/std": pstdev(flat),
            "advantage/nonzero_frac": fmean(value != 0 for value in flat),
            "advantage/distinct_per_group": fmean(
                len({f"{value:.4g}" for value in group}) for group in self.advantages
            ),
            "optim/grad_norm": fmean(self.norms),
            **({} if self.lr is None else {"optim/lr": self.lr}),
            **self.sums.values(),
            **self.judged,
            **counts,
        }


@dataclass(slots=True)
class Baseline:
    """The moving reward average that the `ema` baseline subtracts; 0 with any other."""

    average: float = 0.0

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
    """Owns the policy's weights during a step; `parts` is what it carries from step to step."""

    def __init__(
        self, config: RunConfig, policy: Policy, optimizer: PolicyOptimizer, reference: Policy | None
    ) -> None:
        self.config, self.policy, self.optimizer, self.reference = config, policy, optimizer, reference
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
        self.valuation = Valuation.of(policy, config)
        if self.valuation is not None:
            self.parts["critic"] = self.valuation.critic
        objective = config.objective
        is_plain = objective.ratio.logprob_temperature == "one"
        self.temperature = 1.0 if is_plain else config.sampling.temperature

    def learn(
        self,
        collected: Collected,
        generator: torch.Generator,
        learned: Learned,
        *,
        opening: Policy | None = None,
    ) -> None:
        """Train on the groups that the filters left, and add what happened to `learned`.

        `opening` is the policy that opened the step, where it differs from the present one.
        """
        groups = collected.training
        if not groups:
            return
        started = time.perf_counter()
        tokens = self._tokens(groups)
        batch, judged = self._open(tokens, groups, learned, opening=opening)
        per_token: dict[str, Tensor] = {}
        if self.valuation is None or not self.valuation.is_pretraining(learned.step):
            upweight = filters.upweight(kept=len(groups), total=len(collected.groups))
            upweight = upweight if self.config.filters.upweight else 1.0
            batch = self._updates(
                tokens, batch, len(groups), generator, per_token, learned, upweight=upweight
            )
        if judged is not None:
            self._fit_critic(judged, len(groups), generator, learned)
            per_token |= {"advantage": judged.advantages.cpu(), "value": judged.values.old_values.cpu()}
        learned.advantages += _of_completions(batch).view(len(groups), -1).tolist()
        learned.arrays += _by_completion(per_token, tokens.lengths.tolist(), len(groups))
        learned.seconds += time.perf_counter() - started

    def _updates(
        self,
        tokens: TokenBatch,
        batch: PolicyBatch,
        groups: int,
        generator: torch.Generator,
        per_token: dict[str, Tensor],
        learned: Learned,
        *,
        upweight: float,
    ) -> PolicyBatch:
        """The policy's updates; returns the batch with the advantages that were applied."""
        applied = batch.advantages.clone()
        epochs = 1 if self.config.updates.resample_each_epoch else self.config.updates.epochs
        for _ in range(epochs):
            for rows in self._minibatches(groups, generator):
                here = rows.to(batch.mask.device)
                part = whiten(batch.rows(here), self.config.objective.advantage, over="minibatch")
                applied[here] = part.advantages
                for update in updates_of(part, self.config.objective.token_weight):
                    norm = self._update(tokens, update, rows, per_token, learned, upweight=upweight)
                    learned.norms.append(norm)
        if "kl" in per_token:
            self.kl.observe(per_token["kl"], batch.mask.cpu())
        return replace(batch, advantages=applied)

    def _fit_critic(self, judged: Judged, groups: int, generator: torch.Generator, learned: Learned) -> None:
        if self.valuation is None:
            return
        started = time.perf_counter()
        fitted = self.valuation.fit(judged, lambda: self._minibatches(groups, generator), step=learned.step)
        learned.sums += fitted.sums
        learned.critic_norms += fitted.norms
        learned.judged = judged.metrics
        learned.critic_seconds += time.perf_counter() - started

    def _tokens(self, groups: Sequence[Group]) -> TokenBatch:
        room = self.config.sampling.max_new_tokens
        prompts = [self.policy.encode(group.prompt.text, room=room) for group in groups]
        return token_batch(
            [prompt for prompt, group in zip(prompts, groups, strict=True) for _ in group.completions],
            [completion.ids.tolist() for group in groups for completion in group.completions],
            pad_id=self.policy.pad_id,
            device=self.policy.model.device,
            kept=[
                completion.kept
                for group in groups
                for completion in group.completions
                if completion.kept is not None
            ],
            routes=[
                completion.routes
                for group in groups
                for completion in group.completions
                if completion.routes is not None
            ],
        )

    def _open(
        self, tokens: TokenBatch, groups: Sequence[Group], learned: Learned, *, opening: Policy | None
    ) -> tuple[PolicyBatch, Judged | None]:
        """The batch with what stays constant during the updates: old and reference log-probs, advantages.

        And the critic's judgement, where there is one.
        """
        completions = [completion for group in groups for completion in group.completions]
        mask = tokens.mask
        if isinstance(self.config.length.truncated, MaskTruncated):
            ended = torch.tensor([not completion.is_truncated for completion in completions])
            mask = mask & ended.to(mask.device).unsqueeze(1)
        domains = [group.prompt.domain for group in groups for _ in group.completions]
        kl_coef = self.kl.coefficients(domains)
        names = tuple(sorted({*domains, *(source.domain for source in self.config.problems)}))
        batch = PolicyBatch(
            mask=mask,
            kl_coef=None if kl_coef is None else kl_coef.to(mask.device),
            domains=names,
            domain_index=torch.tensor([names.index(name) for name in domains], device=mask.device),
            advantages=torch.zeros(len(mask), device=mask.device),
            group_index=torch.arange(len(groups), device=mask.device).repeat_interleave(
                len(groups[0].completions)
            ),
            sampler_logprobs=padded(
                [completion.sampler_logprobs.tolist() for completion in completions], tokens
            ),
            old_experts=replayed_experts(tokens),
        )
        entropy = padded([completion.entropies.tolist() for completion in completions], tokens)
        batch = with_token_choice(batch, entropy, self.config.objective.token_weight)
        bonus = self.entropy.weights(entropy.cpu(), mask.cpu())
        batch = replace(batch, entropy_coef=None if bonus is None else bonus.to(mask.device))
        if self._needs_old(opening):
            batch = self._with_old(batch, opening or self.policy, tokens)
        if self.reference is not None:
            started = time.perf_counter()
            batch = replace(batch, reference_logprobs=self._logprobs(self.reference, tokens))
            if tokens.ids.is_cuda:
                torch.cuda.synchronize(tokens.ids.device)  # else only the launch of the work is timed
            learned.reference_seconds += time.perf_counter() - started
        rewards, scored = tensors([group.rewards for group in groups])
        batch = replace(
            batch, scored=scored.flatten().to(mask.device), correct=_correct(groups).to(mask.device)
        )
        penalty = kl_reward_penalty(batch, self.config.objective)
        if self.valuation is not None:
            judged = self.valuation.judge(tokens, batch, rewards, penalty, step=learned.step)
            return replace(batch, advantages=judged.advantages), judged
        rewards -= penalty.sum(dim=1).cpu().double().view(rewards.shape)
        return self._compared(groups, batch, rewards, scored), None

    def _compared(
        self, groups: Sequence[Group], batch: PolicyBatch, rewards: Tensor, scored: Tensor
    ) -> PolicyBatch:
        """The batch with one advantage for each completion, from all rewards (P, G) of the step."""
        advantage = self.config.objective.advantage
        if isinstance(advantage, knobs.Critic):
            raise TypeError("a critic judges tokens")
        estimate = estimate_advantages(
            rewards,
            scored,
            advantage,
            average=self.baseline.average,
            terms=reward_terms(groups),
            visits=self.history.visits([group.prompt.id for group in groups]),
        )
        if estimate.visits is not None:
            self.history.remember([group.prompt.id for group in groups], estimate.visits)
        self.baseline.average = estimate.average
        values = estimate.advantages.flatten().float().to(batch.mask.device)
        return whiten(replace(batch, advantages=values), advantage, over="step")

    def _needs_old(self, opening: Policy | None) -> bool:
        """Whether the opening log-probs differ from those of the first update, or are needed before it."""
        updates = self.config.updates
        several = updates.minibatches > 1 or (updates.epochs > 1 and not updates.resample_each_epoch)
        several = several or isinstance(self.config.objective.token_weight, knobs.Lopti)
        searches = updates.rule == "natural_gradient"
        return several or searches or opening is not None or self.config.objective.kl_in_reward

    @torch.no_grad()
    def _with_old(self, batch: PolicyBatch, policy: Policy, tokens: TokenBatch) -> PolicyBatch:
        """The batch with what the policy that opened the step, and its routers, thought of the tokens."""
        old = torch.zeros(batch.mask.shape, device=batch.mask.device)
        experts = logprobs = None
        for rows in microbatches(tokens, rows=self.config.resources.microbatch_completions):
            here = rows.to(old.device)
            found = routed_logprobs(policy.model, tokens.rows(rows), temperature=self.temperature)
            place = here, slice(found.scored.logprobs.shape[1])
            old[place] = found.scored.logprobs
            if found.experts is None or found.logprobs is None:
                continue
            used = found.experts if batch.old_experts is None else batch.old_experts[place]
            if experts is None or logprobs is None:
                experts = used.new_zeros(*old.shape, *used.shape[2:])
                logprobs = old.new_zeros(experts.shape)
            experts[place], logprobs[place] = used, found.logprobs.gather(-1, used)
        return replace(batch, old_logprobs=old, old_experts=experts, old_router_logprobs=logprobs)

    @torch.no_grad()
    def _logprobs(self, policy: Policy, tokens: TokenBatch) -> Tensor:
        logprobs = torch.zeros(tokens.mask.shape, device=tokens.mask.device)
        for rows in microbatches(tokens, rows=self.config.resources.microbatch_completions):
            routed = routed_logprobs(policy.model, tokens.rows(rows), temperature=self.temperature)
            found = routed.scored.logprobs
            logprobs[rows.to(logprobs.device), : found.shape[1]] = found
        return logprobs

    def _minibatches(self, groups: int, generator: torch.Generator) -> Iterator[Tensor]:
        """Rows of each optimizer batch: whole groups, shuffled when there are several batches."""
        parts = min(self.config.updates.minibatches, groups)
        order = torch.randperm(groups, generator=generator) if parts > 1 else torch.arange(groups)
        size = self.config.sampling.group_size
        for chosen in order.tensor_split(parts):
            yield (chosen.unsqueeze(1) * size + torch.arange(size)).flatten()

    def _update(
        self,
        tokens: TokenBatch,
        batch: PolicyBatch,
        rows: Tensor,
        per_token: dict[str, Tensor],
        learned: Learned,
        *,
        upweight: float,
    ) -> float:
        """One optimizer step on some rows of `tokens`, whose batch is given.

        Returns the gradient norm; where it is not finite the step was skipped.
        """
        weights = self._denominators(batch, upweight=upweight)
        if self.config.updates.rule == "natural_gradient":
            return self._natural_update(tokens, batch, rows, weights, per_token, learned)
        for found in self._passes(tokens, batch, rows, weights, per_token, learned):
            found.loss.backward()
            self.optimizer.take_gradients()
        update = self.optimizer.step(learned.step)
        learned.lr = update.lr
        return update.grad_norm

    def _natural_update(
        self,
        tokens: TokenBatch,
        batch: PolicyBatch,
        rows: Tensor,
        weights: Denominators,
        per_token: dict[str, Tensor],
        learned: Learned,
    ) -> float:
        """One step inside the trust region; only its first pass over the tokens is taken down."""
        record = [learned]

        def surrogate() -> Iterator[Tensor]:
            taker = record.pop() if record else None
            for found in self._passes(tokens, batch, rows, weights, per_token, taker):
                yield -found.loss

        step = trust_region_step(
            self.policy.model,
            tokens.rows(rows),
            batch.mask,
            surrogate,
            temperature=self.temperature,
            trust=self.config.updates.trust,
            microbatch=self.config.resources.microbatch_completions,
        )
        learned.sums += metrics_of(step)
        return step.grad_norm

    def _denominators(self, batch: PolicyBatch, *, upweight: float) -> Denominators:
        objective = self.config.objective
        return denominators(
            batch.mask,
            batch.group_index,
            objective,
            max_new_tokens=self.config.sampling.max_new_tokens,
            upweight=upweight,
            correct=batch.correct,
        )

    def _passes(
        self,
        tokens: TokenBatch,
        batch: PolicyBatch,
        rows: Tensor,
        weights: Denominators,
        per_token: dict[str, Tensor],
        learned: Learned | None,
    ) -> Iterator[PolicyLoss]:
        """The loss of each micro-batch under the present weights; `learned` takes it down, if given."""
        objective = self.config.objective
        for part in microbatches(tokens.rows(rows), rows=self.config.resources.microbatch_completions):
            chosen = part.to(batch.mask.device)
            scored, router_logprobs, experts = routed_logprobs(
                self.policy.model,
                tokens.rows(rows[part]),
                temperature=self.temperature,
                entropy_gradient=objective.needs_entropy_gradient,
            )
            inputs = batch.rows(chosen).columns(scored.logprobs.shape[1])
            found = policy_loss(
                scored.logprobs,
                with_router_shift(inputs, router_logprobs),
                objective,
                weights.rows(chosen),
                entropy=scored.entropy,
            )
            yield found
            if learned is not None:
                learned.sums += found.metrics
                learned.sums += router_metrics(inputs, experts)
                if tokens.kept:
                    learned.sums += _kept_mass(scored, batch.mask[chosen])
                values = found.per_token | {"policy_logprob": scored.logprobs.detach()}
                _keep(per_token, values, rows[part], tokens.mask.shape)


def _correct(groups: Sequence[Group]) -> Tensor:
    """(B,) bool: whose answer is known to be right."""
    values = [value for group in groups for value in group.correctness or (None,) * len(group.completions)]
    return torch.tensor([value is not None and value >= 1 for value in values])


def _kept_mass(scored: TokenLogprobs, mask: Tensor) -> MetricSums:
    """sampling/kept_mass: mean probability of what the sampler kept, under the present weights."""
    mass = scored.kept_mass * mask[:, : scored.kept_mass.shape[1]]
    return MetricSums({"sampling/kept_mass": Mean(mass.sum(), mask.sum())})


def _keep(per_token: dict[str, Tensor], values: dict[str, Tensor], rows: Tensor, shape: torch.Size) -> None:
    """Lay the per-token values of some rows into (B, T) tensors of the whole step."""
    for name, value in values.items():
        if name not in per_token:
            per_token[name] = torch.zeros(shape)
        per_token[name][rows, : value.shape[1]] = value.float().cpu()


def _of_completions(batch: PolicyBatch) -> Tensor:
    """The advantage (B,) of each completion: the mean over its tokens where they differ."""
    values = batch.advantages
    if values.ndim == 1:
        return values
    return (values * batch.mask).sum(dim=1) / batch.mask.sum(dim=1).clamp(min=1)


def _by_completion(per_token: dict[str, Tensor], lengths: Sequence[int], groups: int) -> list[list[Arrays]]:
    arrays = {name: value.numpy() for name, value in per_token.items()}
    rows = [
        {name: value[row, :length] for name, value in arrays.items()} for row, length in enumerate(lengths)
    ]
    size = len(rows) // groups
    return [rows[first : first + size] for first in range(0, len(rows), size)]
