"""Aggregate token losses into one number with one weight per completion.

    loss = sum_i w[i] sum_t m[i, t] l[i, t]

The batch has B completions and P prompts; denominators() in policy_loss.py can also count the groups
that a step left out. The weights come from the whole optimizer batch, so that any split
into micro-batches gives the same gradient.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Denominators:
    """The aggregation weights of an optimizer batch, computed once and sliced into micro-batches."""

    weights: Float[Tensor, "B"]
    """Weight of each completion's token sum in the loss."""
    sequence_weight: float
    """Weight of a token if the loss is the mean over completions of token sums. The KL term may use it."""
    completions: int
    """Number of completions in the whole optimizer batch."""
    nll_weight: Float[Tensor, ""] | None = None
    """Weight of a correct completion's token in the mean over all such tokens. None if no NLL term is
    used.
    """

    def rows(self, index: Int[Tensor, "N"] | slice) -> "Denominators":
        """Return the weights of some rows for a micro-batch. They still refer to the whole optimizer
        batch.
        """
        return replace(self, weights=self.weights[index])


def seq_mean_token_mean(lengths: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Return w[i] = 1 / (B L[i]), or 0 for an empty completion, which still counts in B.

    Source: GRPO, arXiv:2402.03300, equation 3.
    """
    return reciprocal(lengths) / len(lengths)


def token_mean(lengths: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Return w[i] = 1 / sum_j L[j]. Source: DAPO, arXiv:2503.14476, equation 8 as implemented in its code."""
    return reciprocal(lengths.sum()).expand(len(lengths))


def prompt_mean(lengths: Int[Tensor, "B"], group_index: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Return w[i] = 1 / (P sum_{j in i's group} L[j]) for P groups in the batch.

    Source: the formula in DAPO's paper, arXiv:2503.14476; Magistral, arXiv:2506.10910.
    """
    groups, slot = group_index.unique(return_inverse=True)
    tokens = torch.zeros(len(groups), dtype=lengths.dtype, device=lengths.device)
    tokens.index_add_(0, slot, lengths)
    return reciprocal(tokens)[slot] / len(groups)


def seq_mean_token_sum(lengths: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """Return w[i] = 1 / B. Source: REINFORCE, Williams 1992; RLOO, arXiv:2402.14740."""
    return torch.full(lengths.shape, 1 / len(lengths), dtype=torch.float64, device=lengths.device)


def seq_mean_token_sum_norm(lengths: Int[Tensor, "B"], *, l_max: int) -> Float[Tensor, "B"]:
    """Return w[i] = 1 / (B l_max), which has no length bias. Source: Dr. GRPO, arXiv:2503.20783."""
    return seq_mean_token_sum(lengths) / l_max


def reciprocal(count: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return 1 / count, or 0 if the count is 0."""
    # Double precision keeps a weight exact to the last bit of the type that the loss is computed in.
    return (count > 0) / count.clamp(min=1).double()
