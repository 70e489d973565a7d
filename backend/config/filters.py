"""Group filters: which groups train, and what replaces those that do not."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from backend.config.base import Frozen, refusal


class KeepAllGroups(Frozen):
    """Every group trains."""

    type: Literal["none"] = "none"


class ZeroVarianceFilter(Frozen):
    """Groups whose rewards are all equal are left out because they carry no signal."""

    type: Literal["zero_variance"] = "zero_variance"


class AccuracyFilter(Frozen):
    """Groups whose accuracy is not strictly between the bounds are left out (DAPO: 0 and 1)."""

    type: Literal["accuracy"] = "accuracy"

    low: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Groups at or below this accuracy are left out."""

    high: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Groups at or above this accuracy are left out."""

    @model_validator(mode="after")
    def _check_order(self) -> "AccuracyFilter":
        if self.low >= self.high:
            raise refusal([("high", f"must be above low = {self.low:g}, got {self.high:g}")])
        return self


GroupFilter = Annotated[KeepAllGroups | ZeroVarianceFilter | AccuracyFilter, Field(discriminator="type")]


class NoRefill(Frozen):
    """Removed groups are not replaced."""

    type: Literal["none"] = "none"

    @property
    def batch_limit(self) -> int:
        """Generation batches of a step at most."""
        return 1


class _Batches(Frozen):
    max_batches: Annotated[int, Field(ge=1, le=1000)] = 10
    """Maximum number of generation batches per step; then the step trains on what it has, with an event."""

    @property
    def batch_limit(self) -> int:
        """Generation batches of a step at most."""
        return self.max_batches


class DynamicRefill(_Batches):
    """Fresh prompts are sampled until the step is full of informative groups (DAPO's dynamic sampling)."""

    type: Literal["dynamic"] = "dynamic"


class ActiveRefill(_Batches):
    """Like dynamic, but surplus informative groups wait for the next step, which trains on them first (active
    sampling, Olmo 3, arXiv:2512.13961). They are then one step old: the policy has moved since they were
    sampled, and `objective.correction` weighs that.
    """

    type: Literal["active"] = "active"


class NeighboursRefill(Frozen):
    """A place without an informative group tries the prompts that come next. The position in the data still
    moves on by one step only, so neighbouring steps share prompts (the book's olmo3 script).
    """

    type: Literal["neighbours"] = "neighbours"

    n: Annotated[int, Field(ge=1, le=1000)] = 8
    """Maximum number of tries per step, including the first; then the step trains on the groups so far."""

    @property
    def batch_limit(self) -> int:
        """Generation batches of a step at most."""
        return self.n


Refill = Annotated[NoRefill | DynamicRefill | ActiveRefill | NeighboursRefill, Field(discriminator="type")]


class FiltersConfig(Frozen):
    """The selection of groups that train."""

    groups: GroupFilter = KeepAllGroups()
    """Filter that decides which groups are left out."""

    refill: Refill = NoRefill()
    """Replacement of the groups that are left out."""

    upweight: bool = False
    """Multiply means over completions or prompts by 1 / (1 - left-out fraction): they become means over the
    groups that are left. Without it the divisor counts groups that were left out and not replaced, so leaving
    out groups of advantage 0 changes no gradient. token_mean over trained tokens is one over the tokens that
    are left either way.
    """
