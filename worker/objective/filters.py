"""Group filters, which select the prompt groups that carry a signal.

They use correctness instead of the shaped reward, because a length penalty would make a group of equal
answers look informative.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def group_variation_mask(scores: Float[Tensor, "P G"], scored: Bool[Tensor, "P G"]) -> Bool[Tensor, "P"]:
    """Return a mask that is True for groups with different scores.

    Source: zero-gradient filter, DAPO, arXiv:2503.14476, section 3.2.
    """
    max_score = scores.masked_fill(~scored, -torch.inf).amax(dim=1)
    min_score = scores.masked_fill(~scored, torch.inf).amin(dim=1)
    return max_score > min_score


def group_accuracy(scores: Float[Tensor, "P G"], scored: Bool[Tensor, "P G"]) -> Float[Tensor, "P"]:
    """Return the mean score of each group, which is NaN for a group without scores. No band contains NaN."""
    return scores.where(scored, scores.new_zeros(())).sum(dim=1) / scored.sum(dim=1)


def accuracy_band_mask(
    scores: Float[Tensor, "P G"], scored: Bool[Tensor, "P G"], *, low: float, high: float
) -> Bool[Tensor, "P"]:
    """Return a mask of the groups with low < accuracy < high. (0, 1) is DAPO's dynamic sampling.

    Source: DAPO, arXiv:2503.14476, equation 11.
    """
    accuracy = group_accuracy(scores, scored)
    return (accuracy > low) & (accuracy < high)


def loss_share(*, trained_count: int, total: int) -> float:
    """Return the factor on a mean over the remaining groups or tokens.

        1 - f, so that the fraction f that was left out counts in the divisor

    Leaving out groups of advantage 0 then changes no gradient and only saves their work.
    """
    return trained_count / total if total else 1.0


def upweight(*, trained_count: int, total: int) -> float:
    """Return the factor on the loss that compensates for dropped groups: 1 / (1 - f), if f is dropped.

    It turns a mean over all completions or prompts into one over the remaining ones. It is 1 if none remain.
    Source: GPG,
    arXiv:2504.02546, alpha = B / (B - M) with M of B completions in groups of equal rewards.
    """
    return total / trained_count if trained_count else 1.0
