"""What the objective is computed from: one optimizer batch, or a micro-batch cut out of it."""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PolicyBatch:
    """Everything about B completions that does not depend on the current weights.

    Columns are completion tokens: column t of every (B, T) tensor belongs to completion token t, padded on
    the right up to T. Values under a False mask may be garbage (even NaN); they never reach the loss.
    """

    mask: Bool[Tensor, "B T"]
    """True on the tokens that the policy generated and that the loss may use."""
    advantages: Float[Tensor, "B"] | Float[Tensor, "B T"]
    """How much better than expected, per completion or per token; a constant for the gradient."""
    group_index: Int[Tensor, "B"]
    """Which prompt group of the whole optimizer batch the row belongs to; rows need not be sorted by it."""
    old_logprobs: Float[Tensor, "B T"] | None = None
    """Log-probabilities under the weights that opened this step; None: take the current ones, detached."""
    sampler_logprobs: Float[Tensor, "B T"] | None = None
    """Log-probabilities as the sampler reported them while generating; None when it reported none."""
    reference_logprobs: Float[Tensor, "B T"] | None = None
    """Log-probabilities under the frozen reference; None when the objective has no reference term."""

    def rows(self, index: Int[Tensor, "N"] | slice) -> "PolicyBatch":
        """The batch reduced to some of its rows: a micro-batch."""
        return PolicyBatch(
            mask=self.mask[index],
            advantages=self.advantages[index],
            group_index=self.group_index[index],
            old_logprobs=None if self.old_logprobs is None else self.old_logprobs[index],
            sampler_logprobs=None if self.sampler_logprobs is None else self.sampler_logprobs[index],
            reference_logprobs=None if self.reference_logprobs is None else self.reference_logprobs[index],
        )

    def columns(self, length: int) -> "PolicyBatch":
        """The batch cut to its first `length` token columns, when all later ones are padding."""

        def cut(values: Tensor | None) -> Tensor | None:
            return values if values is None or values.ndim == 1 else values[:, :length]

        return replace(
            self,
            mask=self.mask[:, :length],
            advantages=self.advantages if self.advantages.ndim == 1 else self.advantages[:, :length],
            old_logprobs=cut(self.old_logprobs),
            sampler_logprobs=cut(self.sampler_logprobs),
            reference_logprobs=cut(self.reference_logprobs),
        )

    def to(self, device: torch.device | str) -> "PolicyBatch":
        """The batch on another device."""

        def move(values: Tensor | None) -> Tensor | None:
            return None if values is None else values.to(device, non_blocking=True)

        return PolicyBatch(
            mask=self.mask.to(device, non_blocking=True),
            advantages=self.advantages.to(device, non_blocking=True),
            group_index=self.group_index.to(device, non_blocking=True),
            old_logprobs=move(self.old_logprobs),
            sampler_logprobs=move(self.sampler_logprobs),
            reference_logprobs=move(self.reference_logprobs),
        )
