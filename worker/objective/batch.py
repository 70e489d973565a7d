"""The batch that the objective is computed on: an optimizer batch or a micro-batch of it."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, slots=True)
class PolicyBatch:
    """All inputs of the loss for B completions that do not depend on the current weights.

    Column t of every (B, T) tensor belongs to completion token t, padded on the right up to T. Values under a
    False mask may be garbage, even NaN, and never reach the loss.
    """

    mask: Bool[Tensor, "B T"]
    """True for tokens that the policy generated and that the loss may use."""
    advantages: Float[Tensor, "B"] | Float[Tensor, "B T"]
    """Advantage per completion or per token, constant for the gradient."""
    group_index: Int[Tensor, "B"]
    """Index of the row's prompt group in the whole optimizer batch. Rows need not be sorted by it."""
    old_logprobs: Float[Tensor, "B T"] | None = None
    """Log-probabilities under the weights at the start of the step. If None, the current ones are used,
    detached.
    """
    sampler_logprobs: Float[Tensor, "B T"] | None = None
    """Log-probabilities that the sampler reported during generation. None if it reported none."""
    reference_logprobs: Float[Tensor, "B T"] | None = None
    """Log-probabilities under the frozen reference policy. None if the objective has no reference term."""
    scored: Bool[Tensor, "B"] | None = None
    """False for completions without a reward, which have advantage 0 and are not whitened. None if all
    have one.
    """
    kl_coef: Float[Tensor, "B"] | None = None
    """Weight of each completion's KL term at this step. None if the objective has one weight for all."""
    entropy_coef: Float[Tensor, "B"] | None = None
    """Weight of each completion's entropy bonus at this step. None if the objective has one weight for
    all.
    """
    domain_index: Int[Tensor, "B"] | None = None
    """Index of the prompt's domain in `domains`."""
    domains: tuple[str, ...] = ()
    """Names of the domains that are reported separately."""
    trained: Bool[Tensor, "B T"] | None = None
    """Tokens that this update trains; others count only in divisors and shared ratios. None if it trains
    all.
    """
    updates: int = 1
    """Number of optimizer steps that the tokens of the optimizer batch are divided over, including this
    one.
    """
    uncertain: Bool[Tensor, "B T"] | None = None
    """The tokens of highest entropy, if the objective restricts the policy loss to them."""
    covariant: Bool[Tensor, "B T"] | None = None
    """The tokens selected by their covariance, if the surrogate uses it."""
    old_experts: Int[Tensor, "B T L K"] | None = None
    """Experts that process each token in a mixture's L layers, replayed or chosen at the start of the
    step.
    """
    old_router_logprobs: Float[Tensor, "B T L K"] | None = None
    """Log-probabilities of the experts under the weights at the start of the step."""
    router_shift: Float[Tensor, "B T"] | None = None
    """Value of log gamma <= 0 for a mixture of experts under the current weights. None for a dense policy."""
    correct: Bool[Tensor, "B"] | None = None
    """True if the answer is right. None if the objective does not need it."""

    def rows(self, index: Int[Tensor, "N"] | slice) -> "PolicyBatch":
        """Return the batch reduced to some of its rows, for a minibatch or a micro-batch."""
        return self._map_tensors(lambda values: values[index])

    def columns(self, length: int) -> "PolicyBatch":
        """Return the first `length` token columns of the batch. All later columns must be padding."""
        return self._map_tensors(lambda values: values if values.ndim == 1 else values[:, :length])

    def to(self, device: torch.device | str) -> "PolicyBatch":
        """Return the batch on another device."""
        return self._map_tensors(lambda values: values.to(device, non_blocking=True))

    def _map_tensors(self, change: Callable[[Tensor], Tensor]) -> "PolicyBatch":
        field_values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        changed_tensors = {
            name: change(value) for name, value in field_values.items() if isinstance(value, Tensor)
        }
        return replace(self, **(field_values | changed_tensors))


Value = TypeVar("Value")


def require(value: Value | None, name: str) -> Value:
    """Return the value, or raise ValueError if it is None although the objective needs it."""
    if value is None:
        raise ValueError(f"this objective needs {name} and the batch has none")
    return value
