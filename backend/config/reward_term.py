"""Fields that reward terms share."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from backend.config.base import Frozen

Weight = Annotated[float, Field(ge=-1000, le=1000, description="Factor of this term in the total reward.")]
TermDomain = Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9_-]{0,31})?$")]


class Term(Frozen):
    """Fields of every term."""

    title: ClassVar[str]
    """Name of the reward term on the launch form."""

    name: str

    weight: Weight = 0.1

    domain: TermDomain = ""
    """Only for prompts of this domain; there it replaces the term of the same name for all domains."""

    @property
    def label(self) -> str:
        """Name of the term in metrics and rollouts."""
        return self.name


class ConditionTerm(Term):
    """A term that may depend on correctness, and on which the others may depend."""

    only_when_correct: bool = False
    """Give it to correct completions only."""

    required: bool = False
    """A completion that lacks it gets a total reward of 0: no other term and no length penalty counts
    (Magistral's format, arXiv:2506.10910). With weight 0 it is a condition only."""


class StepTerm(ConditionTerm):
    """A term that may score each step of the reasoning and not the completion as a whole."""

    per: Literal["completion", "step"] = "completion"
    """completion: one score; step: one for each step of the reasoning. The aggregate is one reward for the
    whole completion in both cases."""

    delimiter: Annotated[str, Field(min_length=1, max_length=32)] = "\n\n"
    """Text between two steps; blank pieces are left out. A plugin splits the completion by itself."""

    aggregate: Literal["min", "mean", "last", "product", "sum"] = "min"
    """How the scores of the steps make one reward."""

    @property
    def over_steps(self) -> str:
        return f"; {self.aggregate} over the steps" if self.per == "step" else ""
