"""Coefficients of the loss that follow what a run measures: state that goes from step to step."""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import torch
from torch import Tensor

from backend.config import knobs
from backend.config.objective import Objective
from backend.errors import FieldError, InvalidConfig
from worker.objective import entropy as entropies
from worker.objective import kl
from worker.state import Stateful


class KlControl:
    """The weight of the KL for each domain: the configured one times a factor that a controller moves."""

    def __init__(self, objective: Objective) -> None:
        self.knob = objective.kl
        self.is_sum = objective.kl_is_sum
        self.factor = 1.0

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
            known = ", ".join(sorted(coef))
            reason = f"has nothing for the domain {domain!r} of a prompt; there is {known}"
            raise InvalidConfig([FieldError("objective.kl.coef", reason)])
        return coef[domain]

    def observe(self, k3: Tensor, mask: Tensor) -> None:
        """Move the factor by the KL (B, T) of a step's completions, nats per token or per completion."""
        if isinstance(self.knob, knobs.NoKl):
            return
        count = len(mask) if self.is_sum else int(mask.sum())
        if not count:
            return
        measured = float(k3.double().where(mask, 0.0).sum()) / count
        match self.knob.controller:
            case knobs.FixedCoefficient():
                pass
            case knobs.DualController(target=target):
                self.factor = kl.dual_descent(self.factor, measured, target=target)
            case knobs.HorizonController(target=target, horizon=horizon):
                self.factor = kl.horizon_control(
                    self.factor, measured, target=target, completions=len(mask), horizon=horizon
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

    @property
    def parts(self) -> dict[str, Stateful]:
        """Itself, where it moves."""
        return {"entropy": self} if isinstance(self.knob, knobs.AdaptiveEntropy) else {}

    def weights(self, entropy: Tensor, mask: Tensor) -> Tensor | None:
        """(B,) float64: this step's weight, by the entropies (B, T) it was sampled with; then move on.

        None where the weight is fixed.
        """
        if not isinstance(self.knob, knobs.AdaptiveEntropy):
            return None
        count = int(mask.sum())
        if not count:
            return torch.zeros(len(mask), dtype=torch.float64)
        mean = float(entropy.double().where(mask, 0.0).sum()) / count
        used = entropies.used_coefficient(self.coef, mean, target=self.knob.target)
        self.coef = entropies.next_coefficient(self.coef, mean, target=self.knob.target, step=self.knob.step)
        return torch.full((len(mask),), used, dtype=torch.float64)

    def values(self) -> dict[str, Any]:
        """See Stateful."""
        return {"coef": self.coef}

    def tensors(self) -> dict[str, Tensor]:
        """See Stateful."""
        return {}

    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:  # noqa: ARG002
        """See Stateful."""
        self.coef = values["coef"]
