"""Base classes of reward terms, with the fields that they share."""

from typing import Annotated, Literal

from pydantic import Field

from backend.config.base import Frozen

Weight = Annotated[float, Field(ge=-1000, le=1000, description="Factor of this term in the total reward.")]
TermDomain = Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9_-]{0,31})?$")]


class Term(Frozen):
    """Base class of all reward terms."""

    name: str

    weight: Weight = 0.1

    domain: TermDomain = ""
    """Domain of the prompts for which the term counts, or empty for all domains. In its domain, it replaces
    the term of the same name for all domains.
    """

    @property
    def label(self) -> str:
        """Name of the term in metrics and rollouts."""
        return self.name


class ConditionTerm(Term):
    """Base class of terms that can depend on correctness or be required."""

    only_when_correct: bool = False
    """Whether only correct completions get this term."""

    required: bool = False
    """Whether a completion without this term gets a total reward of 0, regardless of other terms and length
    penalties (Magistral's format, arXiv:2506.10910). With weight 0 the term is only a condition.
    """


class StepTerm(ConditionTerm):
    """Base class of terms that can score each step of the reasoning instead of the whole completion."""

    per: Literal["completion", "step"] = "completion"
    """Whether to score the whole completion or each step of the reasoning. The scores of steps are aggregated
    to one reward for the whole completion.
    """

    delimiter: Annotated[str, Field(min_length=1, max_length=32)] = "\n\n"
    """Text that separates steps. Blank steps are left out. A plugin splits the completion itself."""

    aggregate: Literal["min", "mean", "last", "product", "sum"] = "min"
    """Aggregation of the scores of the steps to one reward."""

    @property
    def over_steps(self) -> str:
        return f"; {self.aggregate} over the steps" if self.per == "step" else ""
