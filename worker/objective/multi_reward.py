"""Advantages from several rewards that are normalised separately before they are added."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from worker.objective import advantages


class RewardTerms(NamedTuple):
    """The K terms of a reward, before they are added."""

    values: Float[Tensor, "K P G"]
    """Value of each term before its weight."""
    scored: Bool[Tensor, "K P G"]
    """False if a term has no value for a completion."""
    weights: Float[Tensor, "K P"]
    """Factor of each term. It may depend on the domain of the prompt."""


def group_decoupled_advantages(
    terms: RewardTerms, scored: Bool[Tensor, "P G"], *, ddof: int, eps: float
) -> Float[Tensor, "P G"]:
    """Normalise each reward by its spread within the group, then weight, sum and whiten.

        a[k] = (R[k] - mean_group R[k]) / (std_group R[k] + eps)
        s = sum_k w[k] a[k];  A = (s - mean_batch s) / (std_batch s + eps)

    Completions with equal reward sums can have different advantages. With a single group in the batch, the
    last line normalises within that group. Source: GDPO, arXiv:2601.05242.
    """
    total = torch.zeros(scored.shape, dtype=terms.values.dtype)
    for values, term_scored, weights in zip(*terms, strict=True):
        both_scored = term_scored & scored
        centred = advantages.group_centred_rewards(values, both_scored)
        spread = advantages.group_spread(values, both_scored)
        total += weights.unsqueeze(1) * advantages.scaled_advantages(centred, spread, ddof=ddof, eps=eps)
    spread = advantages.batch_spread(total, scored)
    return advantages.scaled_advantages(
        advantages.batch_centred_rewards(total, scored), spread, ddof=ddof, eps=eps
    )
