"""Coefficients of the loss that follow what a run measures: state that goes from step to step."""

from collections.abc import Mapping, Sequence
from typing import Any, assert_never

import torch
from torch import Tensor

from backend.config import knobs
from backend.config.objective import Objective
from backend.errors import FieldError, InvalidConfig
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
        measured = float(k3.double().where(mask, k3.new_zeros(()).double()).sum()) / count
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
