"""Choice of the tokens that an update trains: the rare ones apart (Lopti), or the most uncertain ones."""

from dataclasses import replace
from typing import assert_never

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from backend.config import knobs
from worker.objective import masked
from worker.objective.batch import PolicyBatch, given


def improbable(old_logprobs: Float[Tensor, "B T"], *, eta: float) -> Bool[Tensor, "B T"]:
    """Tokens with exp(old) < |eta|. Source: Lopti, arXiv:2505.12929, algorithm 1."""
    return old_logprobs.exp() < abs(eta)


def most_uncertain(
    entropy: Float[Tensor, "B T"], mask: Bool[Tensor, "B T"], *, q: float
) -> Bool[Tensor, "B T"]:
    """The share q of all tokens with the highest entropy; equals of the last one are kept too.

        kept where H[i, t] >= the (1 - q) quantile of H over the step's tokens

    Source: arXiv:2506.01939, equation 5.
    """
    total = int(mask.sum())
    if not total:
        return mask
    count = max(1, round(q * total))
    known = entropy.masked_fill(~mask, -torch.inf)
    threshold = known.flatten().topk(count).values[-1]
    return mask & (known >= threshold)


def with_token_choice(
    batch: PolicyBatch, entropy: Float[Tensor, "B T"], knob: knobs.TokenWeight
) -> PolicyBatch:
    """The batch of a whole step with the tokens that its entropies (of the sampler) choose, if they do."""
    if not isinstance(knob, knobs.TopEntropy):
        return batch
    return replace(batch, uncertain=most_uncertain(entropy, batch.mask, q=knob.q))


def updates_of(batch: PolicyBatch, knob: knobs.TokenWeight) -> list[PolicyBatch]:
    """The batch once for each optimizer step that it gets, with the tokens that each trains."""
    match knob:
        case knobs.NoTokenWeight() | knobs.AdvantageReweighting() | knobs.TopEntropy():
            return [batch]
        case knobs.Lopti(eta=eta):
            old = masked.zeroed(given(batch.old_logprobs, "old log-probabilities"), batch.mask)
            rare = batch.mask & improbable(old, eta=eta)
            halves = [rare, batch.mask & ~rare]
            chosen = [half for half in (halves if eta > 0 else halves[::-1]) if bool(half.any())]
            return [replace(batch, trained=half, updates=len(chosen)) for half in chosen] or [batch]
        case _:
            assert_never(knob)
