"""Run the forward pass and loss of each micro-batch of an update, and record their statistics."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from backend.config.objective import Objective
from worker.objective.aggregation import Denominators
from worker.objective.batch import PolicyBatch
from worker.objective.metric_sums import Mean, MetricSums
from worker.objective.policy_loss import PolicyLoss, has_gradient, policy_loss
from worker.objective.router import add_router_shift, router_metrics
from worker.policy.logprobs import TokenLogprobs
from worker.policy.routing import Routed
from worker.policy.token_batch import TokenBatch
from worker.training.update_stats import UpdateStats, choice_values, keep_tokens


class RecordedValues(NamedTuple):
    """Values recorded by the passes of an update."""

    per_token: dict[str, Tensor]
    """Values (B, T) of the step, at the last update of each token."""
    contributions: dict[str, Tensor]
    """Contributions (B, T) to this update's loss, dropped when it is repeated with less memory."""
    update_stats: UpdateStats


class MicroBatch(NamedTuple):
    """Rows of one micro-batch."""

    rows: Tensor
    """Rows of the micro-batch in the optimizer batch."""
    learns: bool = True
    """True if the loss has a gradient. Otherwise only statistics are recorded."""


def learning_rows(batch: PolicyBatch, objective: Objective) -> Tensor:
    """Return the rows that go through a backward pass, (B,) bool, on the CPU.

    All rows of a group learn together, because they share prefixes. If no group learns, all rows go through a
    backward pass, so that the optimizer still steps.
    """
    learning = has_gradient(batch, objective)
    groups = batch.group_index[learning] if bool(learning.any()) else batch.group_index
    return torch.isin(batch.group_index, groups).cpu()


def separate_microbatches(row_indices: Sequence[Tensor], is_learning: Tensor) -> list[MicroBatch]:
    """Separate the micro-batches in which no row learns from those in which all rows learn."""
    microbatches = [
        MicroBatch(indices[is_learning[indices] == learns], learns)
        for indices in row_indices
        for learns in (True, False)
    ]
    return [microbatch for microbatch in microbatches if len(microbatch.rows)]


class OptimizerBatch(NamedTuple):
    """Rows of a step for one optimizer step."""

    tokens: TokenBatch
    """Tokens of the whole step."""
    rows: Tensor
    """Indices (B,) of the rows of this optimizer batch."""
    batch: PolicyBatch
    """Inputs of the loss for these rows."""
    weights: Denominators


Score = Callable[..., Routed]
"""Function with the signature of `routed_logprobs`, bound to a model."""


def loss_passes(
    score: Score,
    optimizer_batch: OptimizerBatch,
    microbatches: Sequence[MicroBatch],
    objective: Objective,
    *,
    temperature: float,
    recorded_values: RecordedValues | None = None,
    score_without_gradient: Score | None = None,
) -> Iterator[PolicyLoss]:
    """Yield the loss of each micro-batch under the current weights, and record statistics in
    `recorded_values` if given.

    `score_without_gradient` scores the micro-batches that do not learn, if these need another model.
    """
    for rows, learns in microbatches:
        device_rows = rows.to(optimizer_batch.batch.mask.device)
        with torch.set_grad_enabled(learns):
            token_scores, router_logprobs, experts = (score if learns else score_without_gradient or score)(
                optimizer_batch.tokens.rows(optimizer_batch.rows[rows]),
                temperature=temperature,
                entropy_gradient=objective.needs_entropy_gradient,
            )
            inputs = add_router_shift(
                optimizer_batch.batch.rows(device_rows).columns(token_scores.logprobs.shape[1]),
                router_logprobs,
            )
            pass_loss = policy_loss(
                token_scores.logprobs,
                inputs,
                objective,
                optimizer_batch.weights.rows(device_rows),
                entropy=token_scores.entropy,
            )
        yield pass_loss
        if recorded_values is not None:
            recorded_values.update_stats.sums += pass_loss.metrics
            recorded_values.update_stats.sums += router_metrics(inputs, experts)
            if optimizer_batch.tokens.sampling_masks:
                recorded_values.update_stats.sums += _kept_mass(
                    token_scores, optimizer_batch.batch.mask[device_rows]
                )
            values = (
                pass_loss.per_token
                | choice_values(inputs)
                | {"policy_logprob": token_scores.logprobs.detach()}
            )
            if objective.entropy.type != "none":
                values["policy_entropy"] = token_scores.entropy.detach()
            keep_tokens(
                recorded_values.per_token,
                values,
                optimizer_batch.rows[rows],
                optimizer_batch.tokens.mask.shape,
            )
            keep_tokens(
                recorded_values.contributions,
                pass_loss.contributions,
                optimizer_batch.rows[rows],
                optimizer_batch.tokens.mask.shape,
            )


def _kept_mass(scored: TokenLogprobs, mask: Tensor) -> MetricSums:
    """Return sampling/kept_mass: the mean probability, under the current weights, of the sampler's kept
    tokens.
    """
    mass = scored.kept_mass * mask[:, : scored.kept_mass.shape[1]]
    return MetricSums({"sampling/kept_mass": Mean(mass.sum(), mask.sum())})
