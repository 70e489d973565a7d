"""Choice of the tokens that an update singles out: the rare, the most uncertain, or the covariant ones."""

from dataclasses import replace
from typing import assert_never

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from backend.config import knobs
from worker.objective import masked
from worker.objective.batch import PolicyBatch, require


def improbable_tokens(old_logprobs: Float[Tensor, "B T"], *, eta: float) -> Bool[Tensor, "B T"]:
    """Tokens with exp(old) < |eta|. Source: Lopti, arXiv:2505.12929, algorithm 1."""
    return old_logprobs.exp() < abs(eta)


def most_uncertain_tokens(
    entropy: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, q: float
) -> Bool[Tensor, "B T"]:
    """Return the share q of all tokens with the highest entropy; equals of the last one are kept too.

        kept where H[i, t] >= the (1 - q) quantile of H over the step's tokens

    Source: arXiv:2506.01939, equation 5.
    """
    total = int(mask.sum())
    if not total:
        return mask
    count = max(1, round(q * total))
    masked_entropy = entropy.masked_fill(~mask, -torch.inf)
    threshold = masked_entropy.flatten().topk(count).values[-1]
    return mask & (masked_entropy >= threshold)


def covariances(
    logprobs: Float[Tensor, "B T"], advantages: Float[Tensor, "B N"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Return each token's share of the covariance of log-probability and advantage; 0 where masked.

        cov[i, t] = (log p[i, t] - mean log p) (A[i, t] - mean A), means over all tokens

    Source: Clip-Cov and KL-Cov, arXiv:2505.22617; verl's clip_cov and kl_cov.
    """
    count = mask.sum().clamp(min=1)
    zeroed_pair = [masked.zero_masked(values, mask) for values in (logprobs, advantages.expand_as(logprobs))]
    moved, worth = (values - values.sum() / count for values in zeroed_pair)
    return masked.zero_masked(moved * worth, mask)


def most_covariant_tokens(
    covariance: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, share: float
) -> Bool[Tensor, "B T"]:
    """Return the share of all tokens with the highest covariance, at least one. Source: KL-Cov,
    arXiv:2505.22617.
    """
    total = int(mask.sum())
    chosen = torch.zeros_like(mask)
    if not total:
        return chosen
    masked_covariance = covariance.masked_fill(~mask, -torch.inf).flatten()
    chosen.view(-1)[masked_covariance.topk(max(1, int(share * total))).indices] = True
    return chosen


def random_tokens_in_band(
    covariance: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    generator: torch.Generator,
    *,
    share: float,
    low: float,
    high: float,
) -> Bool[Tensor, "B T"]:
    """Return the share of all tokens, at least one, drawn at random among those with low < covariance < high.

    All of the band where it holds fewer. Source: Clip-Cov, arXiv:2505.22617.
    """
    band = (mask & (covariance > low) & (covariance < high)).flatten().nonzero().squeeze(1)
    order = torch.randperm(len(band), generator=generator).to(band.device)
    chosen = torch.zeros_like(mask)
    chosen.view(-1)[band[order[: max(1, int(share * int(mask.sum())))]]] = True
    return chosen


def choose_covariant_tokens(
    batch: PolicyBatch, surrogate: knobs.Surrogate, generator: torch.Generator
) -> PolicyBatch:
    """Return one optimizer batch with the tokens that its surrogate singles out, if it does.

    By the log-probabilities of the weights that opened the step (of the sampler, where they are not told
    apart), so that a split into micro-batches does not change the choice.
    """
    if not isinstance(surrogate, knobs.ClipCov | knobs.KlCov):
        return batch
    opened = batch.sampler_logprobs if batch.old_logprobs is None else batch.old_logprobs
    opened = require(opened, "old log-probabilities")
    advantages = batch.advantages.unsqueeze(1) if batch.advantages.ndim == 1 else batch.advantages
    covariance = covariances(opened, advantages.to(opened.dtype), batch.mask)
    match surrogate:
        case knobs.KlCov(share=share):
            chosen = most_covariant_tokens(covariance, batch.mask, share=share)
        case knobs.ClipCov(share=share, low=low, high=high):
            chosen = random_tokens_in_band(covariance, batch.mask, generator, share=share, low=low, high=high)
        case _:
            assert_never(surrogate)
    return replace(batch, covariant=chosen)


def choose_entropic_tokens(
    batch: PolicyBatch, entropy: Float[Tensor, "B T"], knob: knobs.TokenWeight
) -> PolicyBatch:
    """Return the batch of a whole step with the tokens that its entropies (of the sampler) choose, if they
    do.
    """
    if not isinstance(knob, knobs.TopEntropy):
        return batch
    return replace(batch, uncertain=most_uncertain_tokens(entropy, batch.mask, q=knob.q))


def split_updates(batch: PolicyBatch, knob: knobs.TokenWeight) -> list[PolicyBatch]:
    """Return the batch once for each optimizer step that it gets, with the tokens that each trains."""
    match knob:
        case knobs.NoTokenWeight() | knobs.AdvantageReweighting() | knobs.TopEntropy():
            return [batch]
        case knobs.Lopti(eta=eta):
            old = masked.zero_masked(require(batch.old_logprobs, "old log-probabilities"), batch.mask)
            rare = batch.mask & improbable_tokens(old, eta=eta)
            halves = [rare, batch.mask & ~rare]
            chosen = [half for half in (halves if eta > 0 else halves[::-1]) if bool(half.any())]
            return [replace(batch, trained=half, updates=len(chosen)) for half in chosen] or [batch]
        case _:
            assert_never(knob)
