"""Selection of the tokens that an update treats differently: rare, most uncertain or covariant ones."""

from dataclasses import replace
from typing import assert_never

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from backend.config import knobs
from worker.objective import masked
from worker.objective.batch import PolicyBatch, require


def improbable_tokens(old_logprobs: Float[Tensor, "B T"], *, eta: float) -> Bool[Tensor, "B T"]:
    """Return the mask of tokens with exp(old) < |eta|. Source: Lopti, arXiv:2505.12929, algorithm 1."""
    return old_logprobs.exp() < abs(eta)


def most_uncertain_tokens(
    entropy: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, q: float
) -> Bool[Tensor, "B T"]:
    """Return the mask of the share q of all tokens with the highest entropy, ties included.

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
    logprob_deviations, advantage_deviations = (values - values.sum() / count for values in zeroed_pair)
    return masked.zero_masked(logprob_deviations * advantage_deviations, mask)


def most_covariant_tokens(
    covariance: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, share: float
) -> Bool[Tensor, "B T"]:
    """Return the mask of the share of all tokens with the highest covariance, at least one.

    Source: KL-Cov, arXiv:2505.22617.
    """
    total = int(mask.sum())
    selected_mask = torch.zeros_like(mask)
    if not total:
        return selected_mask
    masked_covariance = covariance.masked_fill(~mask, -torch.inf).flatten()
    selected_mask.view(-1)[masked_covariance.topk(max(1, int(share * total))).indices] = True
    return selected_mask


def random_tokens_in_band(
    covariance: Float[Tensor, "B T"],
    mask: Bool[Tensor, "B T"],
    generator: torch.Generator,
    *,
    share: float,
    low: float,
    high: float,
) -> Bool[Tensor, "B T"]:
    """Return the mask of a random share of all tokens, at least one, with low < covariance < high.

    If fewer tokens are in the band, all of them are chosen. Source: Clip-Cov, arXiv:2505.22617.
    """
    band = (mask & (covariance > low) & (covariance < high)).flatten().nonzero().squeeze(1)
    order = torch.randperm(len(band), generator=generator).to(band.device)
    selected_mask = torch.zeros_like(mask)
    selected_mask.view(-1)[band[order[: max(1, int(share * int(mask.sum())))]]] = True
    return selected_mask


def choose_covariant_tokens(
    batch: PolicyBatch, surrogate: knobs.Surrogate, generator: torch.Generator
) -> PolicyBatch:
    """Return the optimizer batch with the tokens that its surrogate selects by covariance, if it does.

    The log-probabilities are those at the start of the step, or the sampler's if there are no old ones, so
    that a split into micro-batches does not change the choice.
    """
    if not isinstance(surrogate, knobs.ClipCov | knobs.KlCov):
        return batch
    old_logprobs = batch.sampler_logprobs if batch.old_logprobs is None else batch.old_logprobs
    old_logprobs = require(old_logprobs, "old log-probabilities")
    advantages = batch.advantages.unsqueeze(1) if batch.advantages.ndim == 1 else batch.advantages
    covariance = covariances(old_logprobs, advantages.to(old_logprobs.dtype), batch.mask)
    match surrogate:
        case knobs.KlCov(share=share):
            selected_mask = most_covariant_tokens(covariance, batch.mask, share=share)
        case knobs.ClipCov(share=share, low=low, high=high):
            selected_mask = random_tokens_in_band(
                covariance, batch.mask, generator, share=share, low=low, high=high
            )
        case _:
            assert_never(surrogate)
    return replace(batch, covariant=selected_mask)


def choose_entropic_tokens(
    batch: PolicyBatch, entropy: Float[Tensor, "B T"], knob: knobs.TokenWeight
) -> PolicyBatch:
    """Return the batch of a step with its most uncertain tokens by the sampler's entropies, if the knob
    asks for it.
    """
    if not isinstance(knob, knobs.TopEntropy):
        return batch
    return replace(batch, uncertain=most_uncertain_tokens(entropy, batch.mask, q=knob.q))


def split_updates(batch: PolicyBatch, knob: knobs.TokenWeight) -> list[PolicyBatch]:
    """Return one batch for each optimizer step, marked with the tokens that it trains."""
    match knob:
        case knobs.NoTokenWeight() | knobs.AdvantageReweighting() | knobs.TopEntropy():
            return [batch]
        case knobs.Lopti(eta=eta):
            old_logprobs = masked.zero_masked(
                require(batch.old_logprobs, "old log-probabilities"), batch.mask
            )
            rare = batch.mask & improbable_tokens(old_logprobs, eta=eta)
            token_masks = [rare, batch.mask & ~rare]
            nonempty_masks = [
                token_mask
                for token_mask in (token_masks if eta > 0 else token_masks[::-1])
                if bool(token_mask.any())
            ]
            return [
                replace(batch, trained=token_mask, updates=len(nonempty_masks))
                for token_mask in nonempty_masks
            ] or [batch]
        case _:
            assert_never(knob)
