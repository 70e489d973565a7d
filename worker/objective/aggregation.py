"""Aggregation of token losses into one number: every reduction is a sum with one weight per completion.

    loss = sum_i w[i] sum_t m[i, t] l[i, t]

B completions and P prompts are those of the batch; denominators() in policy_loss.py also counts the groups
that a step left out, where it is told to. The weights come from the whole optimizer batch, so that any split
into micro-batches gives the same gradient.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Denominators:
    """The weights of an optimizer batch's completions, computed once and cut with the batch."""

    weights: Float[Tensor, "B"]
    """Weight of each completion's token sum in the loss."""
    sequence_weight: float
    """The same for a mean over completions of token sums; the KL term may use it."""
    completions: int
    """Completions of the whole optimizer batch."""
    nll_weight: Float[Tensor, ""] | None = None
    """Weight of a correct completion's token in the mean over all such tokens; None: it was not asked for."""

    def rows(self, index: Int[Tensor, "N"] | slice) -> "Denominators":
        """Return the weights of some rows, for a micro-batch; they stay those of the whole batch."""
        return replace(self, weights=self.weights[index])


def seq_mean_token_mean(lengths: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """w[i] = 1 / (B L[i]); 0 for an empty completion, which still counts in B.

    Source: GRPO, arXiv:2402.03300, equation 3.
    """
    return reciprocal(lengths) / len(lengths)


def token_mean(lengths: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """w[i] = 1 / sum_j L[j]. Source: DAPO, arXiv:2503.14476, equation 8 (as its code has it)."""
    return reciprocal(lengths.sum()).expand(len(lengths))


def prompt_mean(lengths: Int[Tensor, "B"], group_index: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """w[i] = 1 / (P sum_{j in i's group} L[j]), P groups in the batch.

    Source: DAPO's written formula, arXiv:2503.14476; Magistral, arXiv:2506.10910.
    """
    groups, slot = group_index.unique(return_inverse=True)
    tokens = torch.zeros(len(groups), dtype=lengths.dtype, device=lengths.device)
    tokens.index_add_(0, slot, lengths)
    return reciprocal(tokens)[slot] / len(groups)


def seq_mean_token_sum(lengths: Int[Tensor, "B"]) -> Float[Tensor, "B"]:
    """w[i] = 1 / B. Source: REINFORCE, Williams 1992; RLOO, arXiv:2402.14740."""
    return torch.full(lengths.shape, 1 / len(lengths), dtype=torch.float64, device=lengths.device)


def seq_mean_token_sum_norm(lengths: Int[Tensor, "B"], *, l_max: int) -> Float[Tensor, "B"]:
    """w[i] = 1 / (B l_max): no length bias. Source: Dr. GRPO, arXiv:2503.20783."""
    return seq_mean_token_sum(lengths) / l_max


def reciprocal(count: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return 1 / count; 0 if the count is 0."""
    # double precision: a weight is exact to the last bit of whatever the loss is computed in
    return (count > 0) / count.clamp(min=1).double()
