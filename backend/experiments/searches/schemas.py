"""Schemas of searches for the HTTP API."""

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
    """Reason why the configuration was pruned or refused, or why its run ended."""
    step: int
    """Step of the newest value."""
    value: float | None
    """Newest value of the objective; null if there is none or it is not finite."""
    counts: bool
    """Whether the value is eligible to win, because the run has ended without being pruned."""
    best: float | None
    """Best eligible value of the configurations up to this one."""
    chosen: bool
    """Whether the configuration is run again with the remaining seeds."""


class Finalist(Documented):
    """One of the best configurations, compared over the remaining seeds without the seed that selected it."""

    number: int
    variant: str
    n: int
    """Number of remaining seeds with a value."""
    waiting: int
    """Number of remaining seeds whose runs are unfinished."""
    mean: float | None
    low: float | None
    high: float | None
    """Upper end of Student's 95 % interval of the mean."""
    difference: float | None
    """Difference from the first finalist: the mean over pairs of seeds, or the difference of the means."""
    difference_low: float | None
    difference_high: float | None
    """Upper end of the 95 % interval of the difference, before the correction."""
    paired: bool | None
    """Whether values are paired by seed; false if each side has a seed that the other lacks, or only one
    seed. Null without a difference.
    """
    p: float | None
    """p-value of the difference, corrected by Holm's procedure over all pairs of finalists."""


class SearchEvent(Documented):
    """An event in the history of a search."""

    at: str
    run: str
    message: str


class SearchItem(Documented):
    """A search with its configurations so far."""

    experiment: str
    status: Literal["searching", "comparing", "finished", "stopped"]
    reason: str
    """Reason why no additional configuration is tried; empty if one may be tried."""
    settings: SearchSettings
    configurations: int
    """Maximum number of configurations that are tried."""
    seeds: list[int]
    """Seeds: the first is used to try configurations, the others to compare the best."""
    knobs: list[str]
    trials: list[SearchTrialItem]
    best: int | None
    """Number of the configuration with the best eligible value."""
    finalists: list[Finalist]
    """Finalists, best mean first."""
    verdict: str
    """Sentence about the winner; empty before the comparison has values."""
    steps_saved: float | None
    """Share of the steps of all ended configurations that pruning has saved; null before one has ended."""
    runs: int
    """Number of runs so far, without the trash."""
    hours: float
    """Hours of worker slots spent so far."""
    money: dict[str, float]
    """Money spent so far, by currency."""
    events: list[SearchEvent]
    """Events, newest first."""


class SearchList(Documented):
    """The search of an experiment; empty if the experiment is not a search."""

    items: list[SearchItem]


def settings_json(settings: SearchSettings) -> dict[str, Any]:
    """Return the settings of a search as JSON."""
    return settings.model_dump(mode="json")
