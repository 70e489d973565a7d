"""Config that selects the groups to train on, and the replacement of the others."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from backend.config.base import Frozen, combination_error


class KeepAllGroups(Frozen):
    """All groups are trained on."""

    type: Literal["none"] = "none"


class ZeroVarianceFilter(Frozen):
    """Leave out groups whose rewards are all equal, because they carry no signal."""

    type: Literal["zero_variance"] = "zero_variance"


class AccuracyFilter(Frozen):
    """Leave out groups whose accuracy is not strictly between the bounds (0 and 1 in DAPO)."""

    type: Literal["accuracy"] = "accuracy"

    low: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Lower bound. Groups with this or a lower accuracy are left out."""

    high: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Upper bound. Groups with this or a higher accuracy are left out."""

    @model_validator(mode="after")
    def _check_order(self) -> "AccuracyFilter":
        if self.low >= self.high:
            raise combination_error([("high", f"must be above low = {self.low:g}, got {self.high:g}")])
        return self


GroupFilter = Annotated[KeepAllGroups | ZeroVarianceFilter | AccuracyFilter, Field(discriminator="type")]


class NoRefill(Frozen):
    """Groups that are left out are not replaced."""

    type: Literal["none"] = "none"

    @property
    def batch_limit(self) -> int:
        """Maximum number of generation batches per step."""
        return 1


class _Batches(Frozen):
    max_batches: Annotated[int, Field(ge=1, le=1000)] = 10
    """Maximum number of generation batches per step. After them the step trains
    on the groups so far and records an event.
    """

    @property
    def batch_limit(self) -> int:
        """Maximum number of generation batches per step."""
        return self.max_batches


class DynamicRefill(_Batches):
    """Sample new prompts until the step has enough informative groups (DAPO's dynamic sampling)."""

    type: Literal["dynamic"] = "dynamic"


class ActiveRefill(_Batches):
    """Like dynamic, but surplus informative groups are kept for the next step, which trains on them first
    (active sampling, Olmo 3, arXiv:2512.13961). The policy has changed since they were sampled, which
    `objective.correction` can correct.
    """

    type: Literal["active"] = "active"


class NeighboursRefill(Frozen):
    """Replace a group that is left out with a group of one of the next prompts. The position in the data
    still advances by one step only, so neighbouring steps share prompts (the book's olmo3 script).
    """

    type: Literal["neighbours"] = "neighbours"

    n: Annotated[int, Field(ge=1, le=1000)] = 8
    """Maximum number of tries per step, including the first. After them
    the step trains on the groups so far.
    """

    @property
    def batch_limit(self) -> int:
        """Maximum number of generation batches per step."""
        return self.n


Refill = Annotated[NoRefill | DynamicRefill | ActiveRefill | NeighboursRefill, Field(discriminator="type")]


class FiltersConfig(Frozen):
    """The selection of the groups that are trained on."""

    groups: GroupFilter = KeepAllGroups()
    """Filter that decides which groups are left out."""

    refill: Refill = NoRefill()
    """Replacement of the groups that are left out."""

    upweight: bool = False
    """Whether to multiply means over completions or prompts by 1 / (1 - left-out fraction), so that they
    become means over the remaining groups. Otherwise the divisor counts groups that were left out and not
    replaced, so that leaving out groups of advantage 0 does not change the gradient. token_mean over trained
    tokens is always a mean over the remaining tokens.
    """
