"""The batch of the objective: one optimizer batch, or a micro-batch cut out of it."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

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
    """The excess over the expected reward, per completion or per token; a constant for the gradient."""
    group_index: Int[Tensor, "B"]
    """The row's prompt group in the whole optimizer batch; rows need not be sorted by it."""
    old_logprobs: Float[Tensor, "B T"] | None = None
    """Log-probabilities under the weights that opened this step; None: the current ones, detached."""
    sampler_logprobs: Float[Tensor, "B T"] | None = None
    """Log-probabilities as the sampler reported them while generating; None when it reported none."""
    reference_logprobs: Float[Tensor, "B T"] | None = None
    """Log-probabilities under the frozen reference; None when the objective has no reference term."""
    scored: Bool[Tensor, "B"] | None = None
    """False for completions without a reward: advantage 0 and no part in whitening; None: all have one."""
    kl_coef: Float[Tensor, "B"] | None = None
    """Weight of each completion's KL term at this step; None: the one number of the objective."""
    entropy_coef: Float[Tensor, "B"] | None = None
    """Weight of each completion's entropy bonus at this step; None: the one number of the objective."""
    domain_index: Int[Tensor, "B"] | None = None
    """Index in `domains` of the prompt's domain."""
    domains: tuple[str, ...] = ()
    """Names of the domains that are reported separately."""
    trained: Bool[Tensor, "B T"] | None = None
    """Tokens that this update trains; others count only in divisors and shared ratios. None: all."""
    updates: int = 1
    """Number of optimizer steps that share out the tokens of the optimizer batch; this is one of them."""
    uncertain: Bool[Tensor, "B T"] | None = None
    """The tokens of highest entropy, when the objective keeps the policy loss on them."""
    covariant: Bool[Tensor, "B T"] | None = None
    """The tokens that are singled out by their covariance, when the surrogate does so."""
    old_experts: Int[Tensor, "B T L K"] | None = None
    """The experts that read each token's state in a mixture's L layers: replayed, or chosen at the start."""
    old_router_logprobs: Float[Tensor, "B T L K"] | None = None
    """Their log-probabilities under the weights that opened this step."""
    router_shift: Float[Tensor, "B T"] | None = None
    """log gamma <= 0 of a mixture of experts under the present weights; None for a dense policy."""
    correct: Bool[Tensor, "B"] | None = None
    """Whether the answer is right; None when the objective does not ask."""

    def rows(self, index: Int[Tensor, "N"] | slice) -> "PolicyBatch":
        """Return the batch reduced to some of its rows: a minibatch or a micro-batch."""
        return self._map_tensors(lambda values: values[index])

    def columns(self, length: int) -> "PolicyBatch":
        """Return the batch cut to its first `length` token columns, when all later ones are padding."""
        return self._map_tensors(lambda values: values if values.ndim == 1 else values[:, :length])

    def to(self, device: torch.device | str) -> "PolicyBatch":
        """Return the batch on another device."""
        return self._map_tensors(lambda values: values.to(device, non_blocking=True))

    def _map_tensors(self, change: Callable[[Tensor], Tensor]) -> "PolicyBatch":
        parts: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        changed = {name: change(value) for name, value in parts.items() if isinstance(value, Tensor)}
        return replace(self, **(parts | changed))


Value = TypeVar("Value")


def require(value: Value | None, name: str) -> Value:
    """Return the value. Raises ValueError if the objective needs it and the batch lacks it."""
    if value is None:
        raise ValueError(f"this objective needs {name} and the batch has none")
    return value
