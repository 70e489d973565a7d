"""Settings of a search: its objective, sampler, pruning and budget."""

from typing import Annotated, Literal

from pydantic import Field, field_validator

from backend.config.metrics import find_metric
from backend.runs.schemas import Body

Direction = Literal["maximize", "minimize"]


class SearchSettings(Body):
    """Objective, sampler, pruning and budget of a sweep with the method `search`."""

    sampler: Literal["tpe", "random"] = "tpe"
    """`tpe` is Optuna's tree-structured Parzen estimator; `random` ignores earlier results."""
    metric: Annotated[str, Field(max_length=128)] = "eval/accuracy"
    """The objective, a metric of the catalog."""
    direction: Literal["catalog", "maximize", "minimize"] = "catalog"
    """Direction of improvement; `catalog` uses that of the metric in the catalog."""
    reading: Literal["final", "best", "mean_of_3"] = "final"
    """The value of a run: its last evaluation, its best, or the mean of its last three. For a metric that
    every step records, the mean of 10 steps counts as an evaluation.
    """
    pruner: Literal["none", "median", "halving"] = "median"
    """`median` stops a run that is worse than the median of the finished runs at the same step; `halving`
    lets the best third continue at each rung (asynchronous successive halving).
    """
    prune_sick: bool = True
    """Stop runs that the diagnosis calls collapsed or declining, and after half of their steps those that it
    says never learned.
    """
    first_rung: Annotated[float, Field(ge=0.05, le=0.9)] = 0.5
    """Share of a run's steps before which the pruner stops nothing; the rungs of halving are at 1, 3, 9, ...
    times this share.
    """
    max_active_runs: Annotated[int, Field(ge=1, le=64)] = 4
    """Maximum number of runs that are active at a time; additional runs start only if a slot is free."""
    top: Annotated[int, Field(ge=1, le=20)] = 3
    """Number of configurations that are run again with the remaining seeds when the search ends."""
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
        """Whether higher values are better."""
        metric_info = find_metric(self.metric)
        return self.direction == "maximize" or (
            self.direction == "catalog" and metric_info is not None and metric_info.better == "up"
        )

    @property
    def has_direction(self) -> bool:
        """Whether the direction of improvement is known."""
        metric_info = find_metric(self.metric)
        return self.direction != "catalog" or (metric_info is not None and metric_info.better != "")
