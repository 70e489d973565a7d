"""Config of token weights, which distinguish the tokens of a completion."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from backend.config.base import Frozen

__all__ = [
    "AdvantageReweighting",
    "Lopti",
    "NoTokenWeight",
    "TokenWeight",
    "TopEntropy",
]


class _TokenWeight(Frozen):
    varies: ClassVar[bool] = False
    """Whether the option gives the tokens of a completion separate advantages."""


class NoTokenWeight(_TokenWeight):
    """All tokens of a completion have the same advantage."""

    type: Literal["none"] = "none"


class AdvantageReweighting(_TokenWeight):
    """Multiply A by alpha p_old + 1 - alpha, so that rare tokens change
    the policy less (AR, arXiv:2505.12929).
    """

    type: Literal["ar"] = "ar"
    varies = True
    alpha: float = Field(default=0.3, ge=0, le=1)
    """Strength of the reweighting. 0 turns it off, and 1 is proportional to the token's old probability."""


class Lopti(_TokenWeight):
    """Make two updates for each batch, first on rare tokens, and then on the others with the updated weights,
    so that rare tokens do not dominate the others (low-probability token isolation, arXiv:2505.12929).

    Both updates use the divisor of the whole batch. KL and entropy are computed on the tokens of the update.
    The learning-rate schedule counts steps, not updates.
    """

    type: Literal["lopti"] = "lopti"
    eta: float = Field(default=0.5, ge=-1, le=1)
    """Old probability below which a token counts as rare. A negative value trains the other tokens first. It
    must not be 0. The paper uses 0.5.
    """

    @field_validator("eta")
    @classmethod
    def _splits(cls, eta: float) -> float:
        if eta == 0:
            raise ValueError("0 leaves no rare tokens: expected 0 < eta <= 1, or below 0 to train them last")
        return eta


class TopEntropy(_TokenWeight):
    """Use the policy loss only on the tokens at which the sampler was most uncertain (arXiv:2506.01939)."""

    type: Literal["top_entropy"] = "top_entropy"
    varies = True
    q: float = Field(default=0.2, gt=0, le=1)
    """Fraction of the tokens of a step that are trained on. The others still
    count in the divisor. The paper uses 0.2.
    """


TokenWeight = Annotated[
    NoTokenWeight | AdvantageReweighting | Lopti | TopEntropy, Field(discriminator="type")
]
