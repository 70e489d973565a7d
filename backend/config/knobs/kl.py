"""The pull to another policy: estimators, coefficients, and when the reference moves."""

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
    """No pull towards a reference; no reference model is loaded."""

    type: Literal["none"] = "none"


class FixedCoefficient(Frozen):
    """The coefficient stays as it is."""

    type: Literal["fixed"] = "fixed"


class DualController(Frozen):
    """Double the coefficient if the KL is above 1.5 targets, halve it if it is below target / 1.5
    (PPO's adaptive penalty, arXiv:1707.06347).
    """

    type: Literal["dual"] = "dual"
    target: float = Field(default=0.01, gt=0, le=1e6)
    """Wanted KL. Nats per token if the KL is a mean; nats per completion if it is a sum (kl.place =
    reward, kl.aggregation = seq_sum, aggregation seq_mean_token_sum). Measured by k3 in the last pass over
    each step's rollouts."""


class HorizonController(Frozen):
    """Multiply the coefficient by 1 + clip(KL / target - 1, -0.2, 0.2) n / horizon after each step's n
    completions (arXiv:1909.08593).
    """

    type: Literal["horizon"] = "horizon"
    target: float = Field(default=0.01, gt=0, le=1e6)
    """Wanted KL. Nats per token if the KL is a mean; nats per completion if it is a sum (kl.place =
    reward, kl.aggregation = seq_sum, aggregation seq_mean_token_sum), as the paper's 6. Measured by k3 in
    the last pass over each step's rollouts."""
    horizon: int = Field(default=10_000, ge=1, le=10**9)
    """Completions over which the coefficient may change by a fifth."""


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
    """Weight of the KL estimate in the loss, 0 to 1000: a number, or one for each domain of the problems,
    e.g. {"math": 0, "code": 0.01} (DeepSeek-V3.2, arXiv:2512.02556). GRPO 0.04, R1 0.001."""
    controller: Controller = FixedCoefficient()
    """Controller that adapts the coefficient to the measured KL; the coefficient starts at coef."""
    to: Literal["reference", "old"] = "reference"
    """The policy that it pulls towards: the frozen reference, or the policy at the start of the step (PPO's
    penalty form)."""
    aggregation: Literal["same_as_loss", "seq_sum"] = "same_as_loss"
    """same_as_loss: reduced as the policy loss; seq_sum: mean over completions of token sums (the book)."""
    k3_limit: Annotated[float, Field(gt=0, le=1e9)] | Literal["none"] = "none"
    """Largest k3 that one token counts for, in the loss and in the metrics; nats. none: the paper's form,
    which pulls hardest where the policy is furthest away (as in TRL). A token beyond the limit is not
    pulled at all: with verl's 10, the pull ends where x < -2.6."""

    @property
    def largest_k3(self) -> float:
        """The limit as a number."""
        return math.inf if self.k3_limit == "none" else self.k3_limit


class KlK3(_KlInLoss):
    """k3 = exp(-x) + x - 1, x = log p - log p_ref: never negative (GRPO, arXiv:2402.03300)."""

    type: Literal["k3"] = "k3"


class KlK2(_KlInLoss):
    """k2 = x^2 / 2: its gradient is the on-policy KL gradient."""

    type: Literal["k2"] = "k2"


class KlK1(_KlInLoss):
    """k1 = x. In the loss its expected on-policy gradient is 0 (noise); in the reward it is correct."""

    type: Literal["k1"] = "k1"
    place: Literal["loss", "reward"] = "loss"
    """loss: added to the loss; reward: coef times the token sum is taken off each completion's reward."""


class KlRatioK3(_KlInLoss):
    """r k3, whose gradient r x is unbiased off-policy too (DeepSeek-V3.2, arXiv:2512.02556)."""

    type: Literal["r_k3"] = "r_k3"


class KlRatioK1(_KlInLoss):
    """r k1 with the gradient through r (the book's V3.2 script)."""

    type: Literal["r_k1"] = "r_k1"


Kl = Annotated[NoKl | KlK3 | KlK2 | KlK1 | KlRatioK3 | KlRatioK1, Field(discriminator="type")]


class FixedReference(Frozen):
    """The reference stays the policy as it was loaded."""

    type: Literal["fixed"] = "fixed"


class EveryN(Frozen):
    """The reference becomes the present policy every n steps (DeepSeek-R1, arXiv:2501.12948)."""

    type: Literal["every_n"] = "every_n"
    n: int = Field(default=400, ge=1, le=10**7)
    """Steps between replacements; R1 400, ProRL v2 200 to 500."""
    reset_optimizer: bool = False
    """Whether the optimizer's moments are reset at each replacement."""


class OnStagnation(Frozen):
    """The reference becomes the present policy when held-out accuracy no longer improves (ProRL,
    arXiv:2505.24864).
    """

    type: Literal["on_stagnation"] = "on_stagnation"
    patience: int = Field(default=5, ge=1, le=10_000)
    """Evaluations in a row without a better accuracy than any since the last replacement; the paper gives no
    number."""
    reset_optimizer: bool = True
    """Whether the optimizer's moments are reset at each replacement; ProRL does, v2 does not."""


class EmaReference(Frozen):
    """Every n steps the reference moves a share of the way to the policy (TR-DPO, arXiv:2404.09656)."""

    type: Literal["ema"] = "ema"
    alpha: float = Field(default=0.6, gt=0, le=1)
    """The share: reference <- alpha policy + (1 - alpha) reference; TR-DPO 0.6."""
    n: int = Field(default=512, ge=1, le=10**7)
    """Steps between moves; TRL 512."""


Reference = Annotated[FixedReference | EveryN | OnStagnation | EmaReference, Field(discriminator="type")]
