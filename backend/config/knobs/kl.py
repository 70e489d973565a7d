"""Config of the KL penalty and of the reference policy."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from backend.config.base import Frozen

__all__ = [
    "Controller",
    "DomainCoefficients",
    "DualController",
    "EmaReference",
    "EveryN",
    "FixedCoefficient",
    "FixedReference",
    "HorizonController",
    "Kl",
    "KlCoefficient",
    "KlK1",
    "KlK2",
    "KlK3",
    "KlRatioK1",
    "KlRatioK3",
    "NoKl",
    "OnStagnation",
    "Reference",
]


class NoKl(Frozen):
    """No KL penalty. No reference model is loaded."""

    type: Literal["none"] = "none"


class FixedCoefficient(Frozen):
    """The coefficient does not change."""

    type: Literal["fixed"] = "fixed"


class DualController(Frozen):
    """Double the coefficient if the KL is above 1.5 target, and halve it if it is below target / 1.5 (PPO's
    adaptive penalty, arXiv:1707.06347).
    """

    type: Literal["dual"] = "dual"
    target: float = Field(default=0.01, gt=0, le=1e6)
    """Target KL, measured by k3 in the last pass over the rollouts of each step. It is in nats per token if
    the KL is a mean, and in nats per completion if it is a sum (kl.place = reward, kl.aggregation = seq_sum,
    aggregation seq_mean_token_sum).
    """


class HorizonController(Frozen):
    """Multiply the coefficient by 1 + clip(KL / target - 1, -0.2, 0.2) n / horizon after each step's n
    completions (arXiv:1909.08593).
    """

    type: Literal["horizon"] = "horizon"
    target: float = Field(default=0.01, gt=0, le=1e6)
    """Target KL, measured by k3 in the last pass over the rollouts of each step. It is in nats per token if
    the KL is a mean, and in nats per completion if it is a sum (kl.place = reward, kl.aggregation = seq_sum,
    aggregation seq_mean_token_sum), like the value 6 in the paper.
    """
    horizon: int = Field(default=10_000, ge=1, le=10**9)
    """Number of completions over which the coefficient may change by a fifth."""


Controller = Annotated[FixedCoefficient | DualController | HorizonController, Field(discriminator="type")]


def _coef_kind(value: Any) -> str:
    return "by_domain" if isinstance(value, Mapping) else "for_all"


_Coefficient = Annotated[float, Field(ge=0, le=1e3)]
DomainCoefficients = Annotated[dict[str, _Coefficient], Field(min_length=1, max_length=32)]
KlCoefficient = Annotated[
    Annotated[_Coefficient, Tag("for_all")] | Annotated[DomainCoefficients, Tag("by_domain")],
    Discriminator(_coef_kind),
]


class _KlInLoss(Frozen):
    coef: KlCoefficient = 0.04
    """Weight of the KL estimate in the loss, 0 to 1000: a number, or a number for each domain of the
    problems, e.g. {"math": 0, "code": 0.01} (DeepSeek-V3.2, arXiv:2512.02556). GRPO uses 0.04, R1 0.001.
    """
    controller: Controller = FixedCoefficient()
    """Controller that adapts the coefficient, which starts at coef, to the measured KL."""
    to: Literal["reference", "old"] = "reference"
    """Policy from which the distance is measured: the reference policy, or the policy at
    the start of the step (PPO's penalty form).
    """
    aggregation: Literal["same_as_loss", "seq_sum"] = "same_as_loss"
    """Aggregation over tokens: the same as that of the policy loss, or the mean
    over completions of token sums (the book).
    """
    k3_limit: Annotated[float, Field(gt=0, le=1e9)] | Literal["none"] = "none"
    """Maximum k3 of a token in the loss and in the metrics, in nats. With none, as in the paper and TRL, the
    penalty is strongest if the policy is far away. A token beyond the limit has no gradient: with verl's 10,
    the gradient vanishes for x < -2.6.
    """

    @property
    def largest_k3(self) -> float:
        """Maximum k3 of a token as a number."""
        return math.inf if self.k3_limit == "none" else self.k3_limit


class KlK3(_KlInLoss):
    """k3 = exp(-x) + x - 1 with x = log p - log p_ref, which is never negative (GRPO, arXiv:2402.03300)."""

    type: Literal["k3"] = "k3"


class KlK2(_KlInLoss):
    """k2 = x^2 / 2, whose gradient is the on-policy gradient of the KL."""

    type: Literal["k2"] = "k2"


class KlK1(_KlInLoss):
    """k1 = x. In the loss its expected on-policy gradient is 0 (only noise). In the reward it is correct."""

    type: Literal["k1"] = "k1"
    place: Literal["loss", "reward"] = "loss"
    """Whether the KL is added to the loss, or coef times its token sum is
    subtracted from the reward of each completion."""


class KlRatioK3(_KlInLoss):
    """r k3, whose gradient r x is also unbiased off-policy (DeepSeek-V3.2, arXiv:2512.02556)."""

    type: Literal["r_k3"] = "r_k3"


class KlRatioK1(_KlInLoss):
    """r k1 with the gradient through r (the book's V3.2 script)."""

    type: Literal["r_k1"] = "r_k1"


Kl = Annotated[NoKl | KlK3 | KlK2 | KlK1 | KlRatioK3 | KlRatioK1, Field(discriminator="type")]


class FixedReference(Frozen):
    """The reference is always the policy at the start of the run."""

    type: Literal["fixed"] = "fixed"


class EveryN(Frozen):
    """The reference becomes the current policy every n steps (DeepSeek-R1, arXiv:2501.12948)."""

    type: Literal["every_n"] = "every_n"
    n: int = Field(default=400, ge=1, le=10**7)
    """Number of steps between replacements. R1 uses 400, ProRL v2 200 to 500."""
    reset_optimizer: bool = False
    """Whether the optimizer's moments are reset at each replacement."""


class OnStagnation(Frozen):
    """The reference becomes the current policy when the held-out accuracy
    stops improving (ProRL, arXiv:2505.24864).
    """

    type: Literal["on_stagnation"] = "on_stagnation"
    patience: int = Field(default=5, ge=1, le=10_000)
    """Number of consecutive evaluations without a new best accuracy since the
    last replacement. The paper gives no number.
    """
    reset_optimizer: bool = True
    """Whether the optimizer's moments are reset at each replacement, as in ProRL but not in v2."""


class EmaReference(Frozen):
    """Every n steps the reference moves a part of the way to the policy (TR-DPO, arXiv:2404.09656)."""

    type: Literal["ema"] = "ema"
    alpha: float = Field(default=0.6, gt=0, le=1)
    """Weight of the policy: reference <- alpha policy + (1 - alpha) reference. TR-DPO uses 0.6."""
    n: int = Field(default=512, ge=1, le=10**7)
    """Number of steps between updates of the reference. TRL uses 512."""


Reference = Annotated[FixedReference | EveryN | OnStagnation | EmaReference, Field(discriminator="type")]
