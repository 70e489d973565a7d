"""Settings of a search: what it optimises, how it prunes, and how much it may take."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from backend.config.metrics import find_metric
from backend.runs.schemas import Body

Direction = Literal["maximize", "minimize"]


class SearchSettings(Body):
    """Objective, sampler, pruning and budget of a sweep with the method `search`."""

    sampler: Literal["tpe", "random"] = "tpe"
    """tpe: Optuna's tree-structured Parzen estimator; random: without regard to what was found."""
    metric: Annotated[str, Field(max_length=128)] = "eval/accuracy"
    """The objective, a metric of the catalog."""
    direction: Literal["catalog", "maximize", "minimize"] = "catalog"
    """catalog: the direction in which the catalog calls the metric better."""
    reading: Literal["final", "best", "mean_of_3"] = "final"
    """The value of a run: its last evaluation, its best one, or the mean of its last three. Of a metric that
    every step records, an evaluation is the mean of 10 steps."""
    pruner: Literal["none", "median", "halving"] = "median"
    """median: stop a run that is worse than the median of the finished ones at the same step; halving: at
    each rung, let the best third go on (asynchronous successive halving)."""
    prune_sick: bool = True
    """Stop runs that the diagnosis calls collapsed or declining, and after half of their steps those that
    it says never learned."""
    first_rung: Annotated[float, Field(ge=0.05, le=0.9)] = 0.5
    """Share of a run's steps before which the pruner stops nothing; halving has its rungs at 1, 3, 9, ...
    times it."""
    at_once: Annotated[int, Field(ge=1, le=64)] = 4
    """Maximum number of runs that train or wait at a time; further ones start only if a slot is free."""
    top: Annotated[int, Field(ge=1, le=20)] = 3
    """Configurations that are run again with the remaining seeds once no more are tried."""
    hours: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Budget in hours of worker slots, which are GPU-hours if slots are GPUs."""
    money: Annotated[float, Field(gt=0, le=1e9)] | None = None
    """Budget in the currency of the slots' price."""

    @field_validator("metric")
    @classmethod
    def _check_metric(cls, metric: str) -> str:
        if find_metric(metric) is None:
            raise ValueError(f"there is no metric {metric!r} in the catalog")
        return metric

    @property
    def maximizes(self) -> bool:
        """Whether a larger value is better."""
        about = find_metric(self.metric)
        return self.direction == "maximize" or (
            self.direction == "catalog" and about is not None and about.better == "up"
        )

    @property
    def has_direction(self) -> bool:
        """Whether it is known which values are better."""
        about = find_metric(self.metric)
        return self.direction != "catalog" or (about is not None and about.better != "")
