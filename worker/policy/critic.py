"""The critic, a copy of the policy's body that predicts the expected reward before each token."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from transformers import PreTrainedModel

from backend.config.run import RunConfig
from worker.objective.metric_sums import Mean, MetricSums
from worker.objective.value import ValueLoss, value_loss
from worker.policy.adapter import is_adapted
from worker.policy.copies import copy_trainable
from worker.policy.logprobs import compute_states
from worker.policy.microbatches import Microbatches
from worker.policy.optimizer import PolicyOptimizer
from worker.policy.shards import ShardedModel, ShardedOptimizer
from worker.policy.text_part import freeze_beside_text
from worker.policy.token_batch import TokenBatch


class ValueBatch(NamedTuple):
    """The batch that the critic is trained on. All tensors are (B, T) and constant."""

    tokens: TokenBatch
    mask: Bool[Tensor, "B T"]
    """True for tokens whose values are trained."""
    old_values: Float[Tensor, "B T"]
    """Values of the critic at the start of the step."""
    returns: Float[Tensor, "B T"]
    """Target values."""


@dataclass(slots=True)
class Fitted:
    """The result of updates of the critic."""

    sums: MetricSums = field(default_factory=MetricSums)
    norms: list[float] = field(default_factory=list)
    """Gradient norm of each update. Updates with a non-finite norm were skipped."""


class CriticModel:
    """The critic's float32 weights with their optimizer, as one part of the run's state."""

    def __init__(
        self,
        policy: PreTrainedModel,
        config: RunConfig,
        microbatches: Microbatches | None = None,
        announce: Callable[[], None] = lambda: None,
    ) -> None:
        """Create a critic from the policy's body with a head that predicts 0.

        `announce` is that of ShardedOptimizer.
        """
        self.value, self.microbatches = config.objective.value, microbatches or Microbatches(config.resources)
        self.model = with_value_head(policy)
        optimizer = config.optimizer.with_(lr=config.optimizer.lr * self.value.lr_factor)
        self.forward: Callable[[TokenBatch], Tensor] = partial(token_values, self.model)
        offload = config.resources.offload_optimizer
        ranks = self.microbatches.ranks
        if ranks.is_alone:
            self.optimizer = PolicyOptimizer(self.model, optimizer, steps=config.steps, offload=offload)
            return
        self.forward = shards = ShardedModel(self.model, ranks, token_values)
        self.optimizer = ShardedOptimizer(shards, optimizer, steps=config.steps, announce=announce)

    @torch.no_grad()
    def predict(self, tokens: TokenBatch) -> Float[Tensor, "B T"]:
        """Return the reward expected before each token, 0 on padding."""
        (values,) = self.microbatches.measured(
            tokens, lambda microbatch: [token_values(self.model, microbatch)]
        )
        return values

    def fit(self, batch: ValueBatch, minibatches: Iterable[Tensor], fitted: Fitted, *, step: int) -> None:
        """Run one update per minibatch of rows, and record the results in `fitted`."""
        for rows in minibatches:
            self._update(batch, rows, fitted, step=step)

    def _update(self, batch: ValueBatch, rows: Tensor, fitted: Fitted, *, step: int) -> None:
        total_tokens = batch.mask[rows.to(batch.mask.device)].sum()
        sums_before, ranks = fitted.sums, self.microbatches.ranks
        rank_rows = rows[ranks.local_rows(batch.tokens.lengths[rows] + batch.tokens.prompt_lengths[rows])]

        def passes(row_indices: Sequence[Tensor]) -> MetricSums:
            sums, missing_passes = MetricSums(), ranks.limit(len(row_indices)) - len(row_indices)
            for indices in row_indices:
                loss, mask = self._losses(batch, rank_rows[indices])
                total = loss.losses.sum() / total_tokens.clamp(min=1)
                (self.value.coef * total).backward()
                self.optimizer.take_gradients()
                sums += _metrics(loss, mask, total_tokens, coef=self.value.coef)
            for _ in range(missing_passes):
                (self.forward(batch.tokens.rows(rows[:1])).sum() * 0).backward()
                self.optimizer.take_gradients()
            return sums

        sums = self.microbatches.run(batch.tokens.rows(rank_rows), passes, self.optimizer.forget_gradients)
        device = batch.mask.device
        fitted.sums = sums_before + (sums if ranks.is_alone else ranks.merged(sums).to(device))
        fitted.norms.append(self.optimizer.step(step).grad_norm)

    def _losses(self, batch: ValueBatch, rows: Tensor) -> tuple[ValueLoss, Tensor]:
        values = self.forward(batch.tokens.rows(rows))
        device_rows = rows.to(values.device)
        old_values, returns, mask = (
            tensor[device_rows, : values.shape[1]] for tensor in (batch.old_values, batch.returns, batch.mask)
        )
        return value_loss(values, old_values, returns, mask, clip=self.value.clip), mask

    def _weights(self) -> list[tuple[str, nn.Parameter]]:
        return [entry for entry in self.model.named_parameters() if entry[1].requires_grad]

    def values(self) -> dict[str, Any]:
        """See Stateful."""
        return {}

    def tensors(self) -> dict[str, Tensor]:
        """Return weights, moments and step counts by parameter name."""
        weights = {f"weight/{name}": weight.detach() for name, weight in self._weights()}
        return weights | {f"optimizer/{name}": value for name, value in self.optimizer.tensors().items()}

    @torch.no_grad()
    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        """See Stateful."""
        for name, weight in self._weights():
            weight.copy_(tensors[f"weight/{name}"])
        prefix = "optimizer/"
        moments = {key.removeprefix(prefix): v for key, v in tensors.items() if key.startswith(prefix)}
        self.optimizer.restore(values, moments)


def token_values(model: PreTrainedModel, batch: TokenBatch) -> Float[Tensor, "B T"]:
    """Return the head's output on the state that predicts each token, 0 on padding."""
    rows, tokens = batch.mask.nonzero(as_tuple=True)  # (N,) each
    columns = batch.prompt_lengths.to(rows.device)[rows] + tokens
    states = compute_states(model, batch, rows, columns - 1)
    head = model.get_output_embeddings()
    state_values = head(states.hidden.to(head.weight.dtype)).squeeze(1)  # (M,)
    return torch.zeros(batch.mask.shape, device=rows.device).index_put(
        (rows, tokens), state_values.index_select(0, states.state_indices)
    )


def with_value_head(policy: PreTrainedModel) -> PreTrainedModel:
    """Return a float32 copy of a policy whose output layer has one unit, which predicts 0.

    The base of an adapted policy is shared in its precision, and the critic trains a separate adapter.
    """
    model = copy_trainable(policy) if is_adapted(policy) else copy.deepcopy(policy).float().requires_grad_()
    if not is_adapted(policy):
        freeze_beside_text(model)
    width = policy.get_output_embeddings().weight.shape[1]
    head = nn.Linear(width, 1, device=policy.device)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    model.set_output_embeddings(head)
    return model


def _metrics(loss: ValueLoss, mask: Tensor, total_tokens: Tensor, *, coef: float) -> MetricSums:
    """Return critic/* and loss/value of a part of an optimizer batch of `total_tokens`. The parts add up."""
    tokens = mask.sum()
    share = tokens.double() / total_tokens.clamp(min=1)
    mean = loss.losses.detach().sum() / total_tokens.clamp(min=1)
    return MetricSums(
        {
            "critic/loss": Mean(mean, share),
            "loss/value": Mean(coef * mean, share),
            "critic/clip_frac": Mean(loss.clipped.sum(), tokens),
        }
    )
