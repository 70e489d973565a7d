"""Controllers of loss coefficients, whose state follows the measurements of each step."""

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
class MeasuredValues:
    """Token values measured in a step."""

    total: float = 0.0
    tokens: int = 0
    completions: int = 0

    def add(self, values: Tensor, mask: Tensor) -> Self:
        """Record values (B, T)."""
        self.total += float(values.double().where(mask, 0.0).sum())
        self.tokens += int(mask.sum())
        self.completions += len(mask)
        return self

    def mean(self, *, per_completion: bool = False) -> float | None:
        """Return the mean over tokens or completions. Return None without values or if it is not finite."""
        if not self.tokens or not math.isfinite(self.total):
            return None
        return self.total / (self.completions if per_completion else self.tokens)


class KlControl:
    """The weight of the KL per domain: the configured weight times a factor that a controller adjusts."""

    def __init__(self, objective: Objective) -> None:
        self.knob = objective.kl
        self.is_sum = objective.kl_is_sum
        self.factor = 1.0
        self.measured_values = MeasuredValues()

    @property
    def parts(self) -> dict[str, Stateful]:
        """Return this object under its name if a controller adjusts the factor, else nothing."""
        is_adaptive = not isinstance(self.knob, knobs.NoKl) and self.knob.controller.type != "fixed"
        return {"kl": self} if is_adaptive else {}

    def coefficients(self, domains: Sequence[str]) -> Tensor | None:
        """Return the KL weights of completions of these domains, (B,) float64, or None without a KL term."""
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
        """Record the KL (B, T) of completions of the step."""
        self.measured_values.add(k3, mask)

    def move(self) -> None:
        """Adjust the factor by the mean KL since the last call, in nats per token or per completion.

        Nothing changes if there was no measurement, or if the mean is not finite.
        """
        measurements, self.measured_values = self.measured_values, MeasuredValues()
        measured_kl = measurements.mean(per_completion=self.is_sum)
        if isinstance(self.knob, knobs.NoKl) or measured_kl is None:
            return
        match self.knob.controller:
            case knobs.FixedCoefficient():
                pass
            case knobs.DualController(target=target):
                self.factor = kl.dual_descent(self.factor, measured_kl, target=target)
            case knobs.HorizonController(target=target, horizon=horizon):
                self.factor = kl.horizon_control(
                    self.factor,
                    measured_kl,
                    target=target,
                    completions=measurements.completions,
                    horizon=horizon,
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
    """The weight of the entropy bonus, which may adapt to the measured entropy."""

    def __init__(self, objective: Objective) -> None:
        self.knob = objective.entropy
        self.coef = self.knob.coef if isinstance(self.knob, knobs.AdaptiveEntropy) else 0.0
        self.measured_values = MeasuredValues()

    @property
    def parts(self) -> dict[str, Stateful]:
        """Return this object under its name if the weight is adjusted, else nothing."""
        return {"entropy": self} if isinstance(self.knob, knobs.AdaptiveEntropy) else {}

    def weights(self, entropy: Tensor, mask: Tensor) -> Tensor | None:
        """Return the weights, (B,) float64, of completions sampled with these entropies (B, T).

        Returns None if the weight is fixed.
        """
        if not isinstance(self.knob, knobs.AdaptiveEntropy):
            return None
        mean = MeasuredValues().add(entropy, mask).mean()
        used_coef = (
            0.0 if mean is None else entropies.used_coefficient(self.coef, mean, target=self.knob.target)
        )
        return torch.full((len(mask),), used_coef, dtype=torch.float64)

    def observe(self, entropy: Tensor, mask: Tensor) -> None:
        """Record the entropies (B, T) of completions that update the policy."""
        self.measured_values.add(entropy, mask)

    def move(self) -> None:
        """Adjust the weight by the mean entropy since the last call, if a finite one was measured."""
        measurements, self.measured_values = self.measured_values, MeasuredValues()
        mean = measurements.mean()
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
