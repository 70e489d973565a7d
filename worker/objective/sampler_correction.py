"""Weights that correct the mismatch between the sampler's and the trainer's probabilities.

rho = p_old / p_sampler for the same token. It is 1 if sampler and trainer agree. All weights are constants,
because `log_rho` is computed from detached values. Dropped tokens still count in the loss's denominator.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from worker.objective import masked
from worker.objective.ratios import LOG_RATIO_LIMIT


class Correction(NamedTuple):
    """Weights on the loss and the tokens whose weights differ from rho."""

    weights: Float[Tensor, "B N"]
    limited: Bool[Tensor, "B N"]
    """Mask of the tokens whose rho was truncated or whose loss was dropped."""


def sequence_log_rho(
    log_rho: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, level: str
) -> Float[Tensor, "B 1"]:
    """Return log rho of each completion: the sum over its tokens ("product") or their mean ("geo")."""
    if level == "geo":
        return masked.token_mean(log_rho, mask)
    return log_rho.sum(dim=1, keepdim=True).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def truncated_weights(log_rho: Float[Tensor, "B N"], *, cap: float) -> Correction:
    """Return w = min(rho, cap). Source: truncated importance sampling, arXiv:1606.02647; Yao et al. 2025."""
    rho = log_rho.exp()
    return Correction(rho.clamp(max=cap), rho > cap)


def banded_weights(log_rho: Float[Tensor, "B N"], *, low: float, high: float) -> Correction:
    """Return w = rho if low <= rho <= high, else 0. Source: IcePop, arXiv:2510.18855."""
    rho = log_rho.exp()
    drop_mask = (rho < low) | (rho > high)
    return Correction(rho.masked_fill(drop_mask, 0), drop_mask)


def k3_rejection(log_rho: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, threshold: float) -> Correction:
    """Return w = 1 for completions whose mean k3 over tokens is at most the threshold, else 0.

        k3[i, t] = rho - 1 - log rho

    Source: verl's rollout correction, seq_mean_k3; k3: Schulman 2020, joschu.net/blog/kl-approx.html.
    """
    k3 = log_rho.expm1() - log_rho
    drop_mask = masked.token_mean(k3, mask) > threshold  # (B, 1)
    return Correction((~drop_mask).to(log_rho.dtype), drop_mask)


def geometric_filter(
    log_rho: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, low: float, high: float
) -> Correction:
    """Return w = rho of the token for completions whose geometric mean of rho is in the band, else 0.

    Source: NeMo-RL and OpenRLHF (seq-mask-tis).
    """
    mean = masked.token_mean(log_rho, mask).exp()  # (B, 1)
    drop_mask = ((mean < low) | (mean > high)).expand_as(log_rho)
    return Correction(torch.exp(log_rho).masked_fill(drop_mask, 0), drop_mask)
