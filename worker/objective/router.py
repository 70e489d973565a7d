"""Router shift of a mixture of experts since the start of the step.

There are L layers with E experts each, K of which process a token.
"""

from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from worker.objective.batch import PolicyBatch
from worker.objective.metric_sums import Mean, MetricSums


def log_gamma(
    router_logprobs: Float[Tensor, "B T L E"],
    old_logprobs: Float[Tensor, "B T L K"],
    old_experts: Int[Tensor, "B T L K"],
) -> Float[Tensor, "B T"]:
    """Return the logarithm of the router shift of each token, which is at most 0.

        log gamma = -mean over layers of mean over the old top-K experts e of |log p_new(e) - log p_old(e)|

    Old refers to the weights at the start of the step. The result is detached because a gradient through the
    router makes training collapse. Source: RSPO, arXiv:2510.23027 version 2.
    """
    logprob_changes = (
        router_logprobs.detach().gather(-1, old_experts) - old_logprobs
    )  # detach: the gate is a constant
    return -logprob_changes.abs().mean(dim=(-2, -1))


def changed_frac(
    experts: Int[Tensor, "B T L K"], old_experts: Int[Tensor, "B T L K"]
) -> Float[Tensor, "B T"]:
    """Return the share of a token's old experts, over all layers, that the router no longer chooses."""
    still_chosen = (old_experts.unsqueeze(-1) == experts.unsqueeze(-2)).any(dim=-1)  # (B, T, L, K)
    return 1 - still_chosen.float().mean(dim=(-2, -1))


def add_router_shift(batch: PolicyBatch, router_logprobs: Float[Tensor, "B T L E"] | None) -> PolicyBatch:
    """Return the batch with the router shift under the current weights.

    Without old router probabilities, the current weights are those at the start of the step, so gamma is 1.
    For a dense policy, which has no routers, the batch is returned unchanged.
    """
    if router_logprobs is None:
        return batch
    shift = torch.zeros(batch.mask.shape, device=batch.mask.device)
    if batch.old_experts is not None and batch.old_router_logprobs is not None:
        shift = log_gamma(router_logprobs, batch.old_router_logprobs, batch.old_experts)
    return replace(batch, router_shift=shift)


def router_metrics(batch: PolicyBatch, experts: Int[Tensor, "B T L K"] | None) -> MetricSums:
    """Return router/expert_change_frac if old or sampled experts are known."""
    if experts is None or batch.old_experts is None:
        return MetricSums({})
    change_fractions = changed_frac(experts, batch.old_experts).masked_fill(~batch.mask, 0)
    return MetricSums({"router/expert_change_frac": Mean(change_fractions.sum(), batch.mask.sum())})
