"""Natural-gradient step on a language model with a bounded KL over whole next-token distributions."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import PreTrainedModel

from backend.config.sections import TrustRegion
from worker.objective.metric_sums import Mean, MetricSums
from worker.policy.logprobs import NextTokens, next_tokens
from worker.policy.natural_gradient import Parts, TrustStep, natural_step
from worker.policy.token_batch import TokenBatch


class DistributionsBefore(NamedTuple):
    """Next-token distributions of a micro-batch before the step."""

    rows: Tensor
    """Rows of the step's tokens that this micro-batch holds."""
    distributions: NextTokens


def trust_region_step(
    model: PreTrainedModel,
    tokens: TokenBatch,
    mask: Tensor,
    surrogate: Parts,
    *,
    temperature: float,
    trust: TrustRegion,
    row_indices: Sequence[Tensor],
) -> TrustStep:
    """Increase `surrogate` by a step on the model's weights with bounded mean KL over the tokens of `mask`.

    `row_indices` holds the rows of each micro-batch.

    Attention is computed without fused kernels, because they have no second derivative.
    """
    count = mask.sum().clamp(min=1)

    def divergence() -> Iterator[Tensor]:
        for rows, old_tokens in distributions:
            new_tokens = next_tokens(model, tokens.rows(rows), temperature=temperature)
            yield _kl(old_tokens, new_tokens, mask[rows.to(mask.device)]) / count

    with sdpa_kernel(SDPBackend.MATH):
        with torch.no_grad():
            distributions = [
                DistributionsBefore(rows, next_tokens(model, tokens.rows(rows), temperature=temperature))
                for rows in row_indices
            ]
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        return natural_step(weights, surrogate, divergence, trust, lean=len(row_indices) > 1)


def _kl(old_tokens: NextTokens, new_tokens: NextTokens, mask: Tensor) -> Tensor:
    """Return the sum of KL(before, now) over unmasked tokens. Several tokens may share a distribution."""
    divergences = (old_tokens.logprobs.exp() * (old_tokens.logprobs - new_tokens.logprobs)).sum(
        dim=-1
    )  # (M,)
    rows, columns = old_tokens.positions
    return (divergences.index_select(0, old_tokens.state_indices) * mask[rows, columns]).sum()


def step_metrics(step: TrustStep) -> MetricSums:
    """Return trust/* of a step."""
    values = {
        "trust/kl_after": step.kl,
        "trust/backtrack": step.backtracks,
        "trust/improvement": step.improvement,
        "trust/line_search_failed": float(step.is_failed),
    }
    count = torch.ones(())
    return MetricSums({name: Mean(torch.tensor(float(value)), count) for name, value in values.items()})
