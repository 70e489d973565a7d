"""Searches as the HTTP interface shows them."""

from typing import Any, Literal

from pydantic import JsonValue

from backend.base.documented import Documented
from backend.experiments.search_settings import SearchSettings
from backend.experiments.searches.trial import State


class SearchTrialItem(Documented):
    """A configuration of a search and its first run."""

    number: int
    """Number of the configuration in the order of choice, starting at 1."""
    values: list[JsonValue]
    """Values of the swept knobs, in the order of `knobs`."""
    variant: str
    run: str | None
    """Run of the configuration; null if it cannot be run or its run was deleted."""
    run_name: str | None
    state: State
    reason: str
    """Reason why the configuration was pruned or refused, or how its run ended."""
    step: int
    """Step of the newest value."""
    value: float | None
    """The newest value of the objective; null: none yet, or it is not finite."""
    counts: bool
    """Whether the value may win: the run has ended by itself."""
    best: float | None
    """The best value that counts among the configurations up to this one."""
    chosen: bool
    """Whether it is run again with the remaining seeds."""


class Finalist(Documented):
    """One of the best configurations over the remaining seeds; the seed that chose it is left out."""

    number: int
    variant: str
    n: int
    """Remaining seeds with a value."""
    waiting: int
    """Remaining seeds whose runs continue."""
    mean: float | None
    low: float | None
    high: float | None
    """Student's 95 % interval of the mean."""
    difference: float | None
    """Difference from the first one, the mean over pairs of seeds or that of the two means."""
    difference_low: float | None
    difference_high: float | None
    """95 % interval of the difference, before the correction."""
    paired: bool | None
    """Whether values are paired by seed; false if each side has a seed that the other lacks, or only one.
    Null without a difference."""
    p: float | None
    """P-value of the difference, by Holm's procedure over all pairs of finalists."""


class SearchEvent(Documented):
    """A line of a search's history."""

    at: str
    run: str
    message: str


class SearchItem(Documented):
    """A search with its configurations so far."""

    experiment: str
    status: Literal["searching", "comparing", "finished", "stopped"]
    reason: str
    """Reason why no further configuration is tried; empty while one may be."""
    settings: SearchSettings
    configurations: int
    """Most that are tried."""
    seeds: list[int]
    """The first one tries, the remaining ones compare."""
    knobs: list[str]
    maximizes: bool
    trials: list[SearchTrialItem]
    best: int | None
    """Number of the configuration with the best value that counts."""
    finalists: list[Finalist]
    """The best mean first."""
    verdict: str
    """Sentence about the winner; empty before the comparison has values."""
    steps_saved: float | None
    """Share of the steps of all ended configurations that pruning has saved; null before one has ended."""
    runs: int
    """All runs so far, the trash left out."""
    hours: float
    """Hours of worker slots spent."""
    money: dict[str, float]
    """Money spent so far, by currency."""
    events: list[SearchEvent]
    """The newest first."""


class SearchList(Documented):
    """The search of an experiment; empty if it is none."""

    items: list[SearchItem]


def settings_json(settings: SearchSettings) -> dict[str, Any]:
    """SearchSettings as JSON."""
    return settings.model_dump(mode="json")
