"""Group filters: which prompt groups carry a signal. The score is correctness, never the shaped reward: a
length penalty would make a group of equal answers look informative.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def group_variation_mask(scores: Float[Tensor, "P G"], scored: Bool[Tensor, "P G"]) -> Bool[Tensor, "P"]:
    """True for groups whose scores differ; decided on whole groups.

    Source: zero-gradient filter, DAPO, arXiv:2503.14476, section 3.2.
    """
    highest = scores.masked_fill(~scored, -torch.inf).amax(dim=1)
    lowest = scores.masked_fill(~scored, torch.inf).amin(dim=1)
    return highest > lowest


def group_accuracy(scores: Float[Tensor, "P G"], scored: Bool[Tensor, "P G"]) -> Float[Tensor, "P"]:
    """Mean score of each group; NaN for a group without any score, which no band contains."""
    return scores.where(scored, scores.new_zeros(())).sum(dim=1) / scored.sum(dim=1)


def accuracy_band_mask(
    scores: Float[Tensor, "P G"], scored: Bool[Tensor, "P G"], *, low: float, high: float
) -> Bool[Tensor, "P"]:
    """True for groups with low < accuracy < high, both exclusive; (0, 1) is DAPO's dynamic sampling.

    Source: DAPO, arXiv:2503.14476, equation 11.
    """
    accuracy = group_accuracy(scores, scored)
    return (accuracy > low) & (accuracy < high)


def loss_share(*, trained: int, total: int) -> float:
    """Return the factor on a mean over what is left, of groups or of tokens.

        1 - f, so that the f that was left out counts in the divisor

    Leaving out groups of advantage 0 then changes no gradient, it only saves their work.
    """
    return trained / total if total else 1.0


def upweight(*, trained: int, total: int) -> float:
    """Factor on the loss that makes up for dropped groups: 1 / (1 - f) with f the dropped fraction.

    A mean over completions or prompts is then one over what is left. 1 when nothing is left. Source: GPG,
    arXiv:2504.02546, alpha = B / (B - M) with M of B completions in groups of equal rewards.
    """
    return total / trained if trained else 1.0
