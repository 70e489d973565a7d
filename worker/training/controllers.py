"""Controllers of loss coefficients: state that follows what a run measures, from step to step."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, assert_never

import torch
from torch import Tensor

from backend.base.errors import FieldError, InvalidConfig
from backend.config import knobs
from backend.config.objective import Objective
from worker.objective import entropy as entropies
from worker.objective import kl
from worker.state import Stateful


@dataclass(slots=True)
class Seen:
    """Token values that were measured in a step."""

    total: float = 0.0
    tokens: int = 0
    completions: int = 0

    def add(self, values: Tensor, mask: Tensor) -> Self:
        """Take note of values (B, T)."""
        self.total += float(values.double().where(mask, 0.0).sum())
        self.tokens += int(mask.sum())
        self.completions += len(mask)
        return self

    def mean(self, *, per_completion: bool = False) -> float | None:
        """Their mean over tokens, or completions; None without any, and where it is not finite."""
        if not self.tokens or not math.isfinite(self.total):
            return None
        return self.total / (self.completions if per_completion else self.tokens)


class KlControl:
    """The weight of the KL for each domain: the configured one times a factor that a controller moves."""

    def __init__(self, objective: Objective) -> None:
        self.knob = objective.kl
        self.is_sum = objective.kl_is_sum
        self.factor = 1.0
        self.seen = Seen()

    @property
    def parts(self) -> dict[str, Stateful]:
        """Itself, where a controller moves it."""
        moves = not isinstance(self.knob, knobs.NoKl) and self.knob.controller.type != "fixed"
        return {"kl": self} if moves else {}

    def coefficients(self, domains: Sequence[str]) -> Tensor | None:
        """(B,) float64: the weight for completions of these domains; None without a KL."""
        if isinstance(self.knob, knobs.NoKl):
            return None
        values = [self._configured(domain) for domain in domains]
        return torch.tensor(values, dtype=torch.float64) * self.factor

    def _configured(self, domain: str) -> float:
        coef = 0.0 if isinstance(self.knob, knobs.NoKl) else self.knob.coef
        if isinstance(coef, float):
            return coef
        if domain not in coef:
            domains = ", ".join(sorted(coef))
            reason = f"has nothing for the domain {domain!r} of a prompt; there is {domains}"
            raise InvalidConfig([FieldError("objective.kl.coef", reason)])
        return coef[domain]

    def observe(self, k3: Tensor, mask: Tensor) -> None:
        """Take note of the KL (B, T) of completions of the step."""
        self.seen.add(k3, mask)

    def move(self) -> None:
        """Move the factor by the mean KL since the last move, nats per token or per completion.

        Nothing moves where nothing was measured, or nothing finite.
        """
        seen, self.seen = self.seen, Seen()
        measured = seen.mean(per_completion=self.is_sum)
        if isinstance(self.knob, knobs.NoKl) or measured is None:
            return
        match self.knob.controller:
            case knobs.FixedCoefficient():
                pass
            case knobs.DualController(target=target):
                self.factor = kl.dual_descent(self.factor, measured, target=target)
            case knobs.HorizonController(target=target, horizon=horizon):
                self.factor = kl.horizon_control(
                    self.factor, measured, target=target, completions=seen.completions, horizon=horizon
                )
            case _:
                assert_never(self.knob.controller)

    def values(self) -> dict[str, Any]:
        """See Stateful."""
        return {"factor": self.factor}

    def tensors(self) -> dict[str, Tensor]:
        """See Stateful."""
        return {}

    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:  # noqa: ARG002
        """See Stateful."""
        self.factor = values["factor"]


class EntropyControl:
    """The weight of the entropy bonus where it follows the entropy."""

    def __init__(self, objective: Objective) -> None:
        self.knob = objective.entropy
        self.coef = self.knob.coef if isinstance(self.knob, knobs.AdaptiveEntropy) else 0.0
        self.seen = Seen()

    @property
    def parts(self) -> dict[str, Stateful]:
        """Itself, where it moves."""
        return {"entropy": self} if isinstance(self.knob, knobs.AdaptiveEntropy) else {}

    def weights(self, entropy: Tensor, mask: Tensor) -> Tensor | None:
        """(B,) float64: the weight for completions that were sampled with these entropies (B, T).

        None if the weight is fixed.
        """
        if not isinstance(self.knob, knobs.AdaptiveEntropy):
            return None
        mean = Seen().add(entropy, mask).mean()
        used = 0.0 if mean is None else entropies.used_coefficient(self.coef, mean, target=self.knob.target)
        return torch.full((len(mask),), used, dtype=torch.float64)

    def observe(self, entropy: Tensor, mask: Tensor) -> None:
        """Take note of the entropies (B, T) of completions that the policy is updated with."""
        self.seen.add(entropy, mask)

    def move(self) -> None:
        """Move the weight by the mean entropy since the last move, if any finite one was measured."""
        seen, self.seen = self.seen, Seen()
        mean = seen.mean()
        if isinstance(self.knob, knobs.AdaptiveEntropy) and mean is not None:
            self.coef = entropies.next_coefficient(
                self.coef, mean, target=self.knob.target, step=self.knob.step
            )

    def values(self) -> dict[str, Any]:
        """See Stateful."""
        return {"coef": self.coef}

    def tensors(self) -> dict[str, Tensor]:
        """See Stateful."""
        return {}

    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:  # noqa: ARG002
        """See Stateful."""
        self.coef = values["coef"]
