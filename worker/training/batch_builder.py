"""Build the batch of a step: old log-probabilities, advantages and masks, computed once per step."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from backend.config import knobs
from backend.config.length import MaskTruncated
from backend.config.run import RunConfig
from worker.objective.batch import PolicyBatch
from worker.objective.token_choice import choose_entropic_tokens
from worker.policy.logprobs import token_energies
from worker.policy.microbatches import Microbatches
from worker.policy.model import Policy
from worker.policy.offload import visiting
from worker.policy.routing import replayed_experts, routed_logprobs
from worker.policy.token_batch import TokenBatch, pad_values, token_batch
from worker.training.update_stats import UpdateStats
from worker.types import Completion, Group


@dataclass(frozen=True, slots=True)
class BatchBuilder:
    """Builds the batch of a step's groups for its updates."""

    config: RunConfig
    policy: Policy
    reference: Policy | None
    temperature: float
    """Sampling temperature. The logits of every policy are divided by it."""
    microbatches: Microbatches

    def tokens(self, groups: Sequence[Group]) -> TokenBatch:
        """Return the prompts and completions of all groups, on the policy's device."""
        room = self.config.sampling.max_new_tokens
        prompts = [self.policy.encode(group.prompt, room=room) for group in groups]
        return token_batch(
            [prompt for prompt, group in zip(prompts, groups, strict=True) for _ in group.completions],
            [completion.ids.tolist() for group in groups for completion in group.completions],
            pad_id=self.policy.pad_id,
            device=self.policy.model.device,
            sampling_masks=[
                completion.sampling_mask
                for group in groups
                for completion in group.completions
                if completion.sampling_mask is not None
            ],
            routes=[
                completion.routes
                for group in groups
                for completion in group.completions
                if completion.routes is not None
            ],
            generated=[completion.generated for group in groups for completion in group.completions],
        )

    def batch(
        self,
        tokens: TokenBatch,
        groups: Sequence[Group],
        update_stats: UpdateStats,
        *,
        old_policy: Policy | None,
    ) -> PolicyBatch:
        """Build the batch without advantages.

        It has masks and the log-probabilities of the sampler, the old and the reference policy. `old_policy`
        is the policy at the start of the step, if it differs from the current one.
        """
        completions = [completion for group in groups for completion in group.completions]
        mask = self._mask(tokens, completions)
        domains = completion_domains(groups)
        names = tuple(sorted({*domains, *(source.domain for source in self.config.problems)}))
        batch = PolicyBatch(
            mask=mask,
            correct=_correct(groups).to(mask.device),
            domains=names,
            domain_index=torch.tensor([names.index(name) for name in domains], device=mask.device),
            advantages=torch.zeros(len(mask), device=mask.device),
            group_index=torch.arange(len(groups), device=mask.device).repeat_interleave(
                len(groups[0].completions)
            ),
            sampler_logprobs=pad_values(
                [completion.sampler_logprobs.tolist() for completion in completions], tokens
            ),
            old_experts=replayed_experts(tokens),
        )
        batch = choose_entropic_tokens(batch, entropies(groups, tokens), self.config.objective.token_weight)
        if self._needs_old(old_policy):
            batch = self._add_old_policy(batch, old_policy or self.policy, tokens)
        if self.reference is None:
            return batch
        started_at = time.perf_counter()
        with visiting(self.reference.model, tokens.ids.device):
            batch = replace(batch, reference_logprobs=self._logprobs(self.reference, tokens))
        if tokens.ids.is_cuda:
            # Without this, only the launch is timed. Other streams may be recording a graph, so do not
            # synchronize the whole device.
            torch.cuda.current_stream(tokens.ids.device).synchronize()
        update_stats.reference_seconds += time.perf_counter() - started_at
        return batch

    def _mask(self, tokens: TokenBatch, completions: Sequence[Completion]) -> Tensor:
        """Return the mask (B, T) of the tokens that the loss may use."""
        if not isinstance(self.config.length.truncated, MaskTruncated):
            return tokens.mask
        is_complete = torch.tensor([not completion.is_truncated for completion in completions])
        return tokens.mask & is_complete.to(tokens.mask.device).unsqueeze(1)

    def _needs_old(self, old_policy: Policy | None) -> bool:
        """Return whether the old log-probabilities differ from those of the first update, or are needed
        earlier.
        """
        updates = self.config.updates
        needs_several = updates.minibatches > 1 or (updates.epochs > 1 and not updates.resample_each_epoch)
        needs_several = needs_several or isinstance(self.config.objective.token_weight, knobs.Lopti)
        needs_several = needs_several or isinstance(self.config.objective.correction, knobs.SequenceK3)
        needs_search = updates.rule == "natural_gradient"
        return needs_several or needs_search or old_policy is not None or self.config.objective.kl_in_reward

    @torch.no_grad()
    def _add_old_policy(self, batch: PolicyBatch, policy: Policy, tokens: TokenBatch) -> PolicyBatch:
        """Add the log-probabilities and routing under the policy at the start of the step to the batch."""

        def measure_microbatch(microbatch: TokenBatch) -> Sequence[Tensor]:
            token_scores, router_logprobs, router_experts = routed_logprobs(
                policy.model, microbatch, temperature=self.temperature
            )
            if router_logprobs is None or router_experts is None:
                return [token_scores.logprobs]
            replayed_choices = replayed_experts(microbatch)
            experts = router_experts if replayed_choices is None else replayed_choices
            return [token_scores.logprobs, experts, router_logprobs.gather(-1, experts)]

        old_logprobs, *router_tensors = self.microbatches.measured(tokens, measure_microbatch)
        experts, logprobs = router_tensors or (None, None)
        return replace(batch, old_logprobs=old_logprobs, old_experts=experts, old_router_logprobs=logprobs)

    def energies(self, tokens: TokenBatch, old_policy: Policy | None) -> Tensor:
        """Return the squared norm of each token's score, (B, T), under the policy at the start of the
        step.
        """
        model = (old_policy or self.policy).model
        return self._per_token(
            tokens, lambda microbatch: token_energies(model, microbatch, temperature=self.temperature)
        )

    def logprobs(self, tokens: TokenBatch) -> Tensor:
        """Return the log-probabilities (B, T) under the current weights without gradient."""
        return self._logprobs(self.policy, tokens)

    def _logprobs(self, policy: Policy, tokens: TokenBatch) -> Tensor:
        return self._per_token(
            tokens,
            lambda microbatch: (
                routed_logprobs(policy.model, microbatch, temperature=self.temperature).scored.logprobs
            ),
        )

    @torch.no_grad()
    def _per_token(self, tokens: TokenBatch, measure: Callable[[TokenBatch], Tensor]) -> Tensor:
        """Apply `measure` to each micro-batch without gradient and return its values (B, T); 0 on padding."""
        (values,) = self.microbatches.measured(tokens, lambda microbatch: [measure(microbatch)])
        return values


def completion_domains(groups: Sequence[Group]) -> list[str]:
    """Return the domain of each completion's prompt, [B]."""
    return [group.prompt.domain for group in groups for _ in group.completions]


def entropies(groups: Sequence[Group], tokens: TokenBatch) -> Tensor:
    """Return the entropies (B, T), in nats, of the distributions that tokens were sampled from, 0 if not
    reported.
    """
    completions = [completion for group in groups for completion in group.completions]
    entropy_rows = [
        np.zeros(len(completion)) if completion.entropies is None else completion.entropies
        for completion in completions
    ]
    return pad_values([values.tolist() for values in entropy_rows], tokens)


def _correct(groups: Sequence[Group]) -> Tensor:
    """Return a mask (B,) of the completions whose answer is known to be correct."""
    values = [value for group in groups for value in group.correctness or (None,) * len(group.completions)]
    return torch.tensor([value is not None and value >= 1 for value in values])
