"""Weights and selections that distinguish the tokens of a completion."""

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
    """Every token of a completion carries the same advantage."""

    type: Literal["none"] = "none"


class AdvantageReweighting(_TokenWeight):
    """Multiply A by alpha p_old + 1 - alpha: rare tokens move the policy less (AR, arXiv:2505.12929)."""

    type: Literal["ar"] = "ar"
    varies = True
    alpha: float = Field(default=0.3, ge=0, le=1)
    """0: no reweighting; 1: proportional to the token's old probability."""


class Lopti(_TokenWeight):
    """Two updates for each batch: rare tokens first, then the others with the updated weights, so that rare
    tokens are not drowned out (low-probability token isolation, arXiv:2505.12929).

    Both keep the whole batch's divisor, and KL and entropy act on the tokens of the update alone. The
    learning-rate schedule counts steps, not updates.
    """

    type: Literal["lopti"] = "lopti"
    eta: float = Field(default=0.5, ge=-1, le=1)
    """Tokens with an old probability below this are the rare ones; a negative value trains the others first.
    Paper 0.5; not 0."""

    @field_validator("eta")
    @classmethod
    def _splits(cls, eta: float) -> float:
        if eta == 0:
            raise ValueError("0 leaves no rare tokens: expected 0 < eta <= 1, or below 0 to train them last")
        return eta


class TopEntropy(_TokenWeight):
    """Keep the policy loss on the tokens at which the sampler was most uncertain (arXiv:2506.01939)."""

    type: Literal["top_entropy"] = "top_entropy"
    varies = True
    q: float = Field(default=0.2, gt=0, le=1)
    """Share of the step's tokens that is kept; paper 0.2. The others still count in the divisor."""


TokenWeight = Annotated[
    NoTokenWeight | AdvantageReweighting | Lopti | TopEntropy, Field(discriminator="type")
]
