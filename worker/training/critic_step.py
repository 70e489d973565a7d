"""Estimate token advantages from the critic's values and update the critic in each step."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from backend.config import knobs
from backend.config.run import RunConfig
from worker.objective.batch import PolicyBatch
from worker.objective.estimation import estimate_token_advantages, policy_lambda
from worker.objective.gae import last_token_rewards
from worker.objective.value import explained_variance
from worker.policy.critic import CriticModel, Fitted, ValueBatch
from worker.policy.microbatches import Microbatches
from worker.policy.model import Policy
from worker.policy.token_batch import TokenBatch


class CriticEstimate(NamedTuple):
    """The critic's estimates for a step's completions."""

    advantages: Float[Tensor, "B T"]
    """Token advantages, float32, on the policy's device; 0 where masked."""
    values: ValueBatch
    """Values that the critic is trained on."""
    metrics: dict[str, float]
    """Metrics critic/explained_variance, critic/lambda_mean and advantage/* over tokens."""


@dataclass(slots=True)
class CriticStep:
    """A critic with the settings of its estimates and its updates."""

    critic: CriticModel
    config: RunConfig
    knob: knobs.Critic

    @classmethod
    def from_config(
        cls,
        policy: Policy,
        config: RunConfig,
        microbatches: Microbatches | None = None,
        announce: Callable[[], None] = lambda: None,
    ) -> "CriticStep | None":
        """Return the critic of a run, or None if its objective has none."""
        knob = config.objective.critic
        if knob is None:
            return None
        return cls(CriticModel(policy.model, config, microbatches, announce), config, knob)

    def is_pretraining(self, step: int) -> bool:
        """Return whether only the critic learns in this step."""
        return step <= self.config.objective.value.pretrain_steps

    def judge(
        self,
        tokens: TokenBatch,
        batch: PolicyBatch,
        rewards: Float[Tensor, "P G"],
        penalty: Float[Tensor, "B T"],
        *,
        step: int,
    ) -> CriticEstimate:
        """Estimate the advantages of a step's tokens; `penalty` is subtracted from each token's reward.

        During pretraining the critic learns the unmodified rewards, whatever lambda_critic is.
        """
        values = self.critic.predict(tokens)
        mask = (batch.mask if batch.scored is None else batch.mask & batch.scored.unsqueeze(1)).cpu()
        token_rewards = last_token_rewards(rewards.flatten(), mask) - penalty.cpu().double()
        knob = self.knob.with_(lambda_critic=1.0) if self.is_pretraining(step) else self.knob
        estimate = estimate_token_advantages(token_rewards, values.cpu().double(), mask, knob)
        metrics = _spread(estimate.advantages[mask]) | _lambda_mean(mask, knob)
        if (explained_share := explained_variance(values.cpu().double(), estimate.returns, mask)) is not None:
            metrics["critic/explained_variance"] = explained_share
        device = tokens.mask.device
        advantages, returns = (tensor.float().to(device) for tensor in estimate)
        return CriticEstimate(advantages, ValueBatch(tokens, mask.to(device), values, returns), metrics)

    def fit(
        self, estimate: CriticEstimate, minibatches: Callable[[], Iterable[Tensor]], *, step: int
    ) -> Fitted:
        """Update the critic after the policy; `minibatches` returns the rows of an epoch's minibatches."""
        updates, epochs = self.config.updates, self.config.objective.value.epochs
        if epochs == "updates.epochs":
            epochs = 1 if updates.resample_each_epoch else updates.epochs
        fitted = Fitted()
        for _ in range(epochs):
            self.critic.fit(estimate.values, minibatches(), fitted, step=step)
        return fitted


def _spread(advantages: Float[Tensor, "N"]) -> dict[str, float]:
    if not len(advantages):
        return {}
    deviation = float(advantages.std()) if len(advantages) > 1 else 0.0
    return {"advantage/mean": float(advantages.mean()), "advantage/std": deviation}


def _lambda_mean(mask: Bool[Tensor, "B T"], knob: knobs.Critic) -> dict[str, float]:
    """Return the mean lambda over completions with tokens, if lambda depends on their length."""
    has_tokens = mask.any(dim=1)
    if not isinstance(knob.lambda_policy, knobs.LengthAdaptive) or not bool(has_tokens.any()):
        return {}
    return {"critic/lambda_mean": float(torch.mean(policy_lambda(mask, knob)[has_tokens]))}
