"""Replays of searches over a grid that was trained whole: what pruning would have saved, and lost.

The grid is claim (i) of benchmarks/evidence: every preset with three seeds, 60 steps, evaluated every ten.
A replay asks the service's own code which preset comes next and which run falls behind; four runs go on at
once, an evaluation at a time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from backend.analysis.diagnosis.log import METRICS, Series
from backend.analysis.diagnosis.online import GrowingLog, is_due
from backend.config.merge import resolve
from backend.experiments.search_settings import SearchSettings
from backend.experiments.searches.decide import best_of, sickness
from backend.experiments.searches.objective import Reports, reports_of, value_of
from backend.experiments.searches.study import fallen_behind, next_point
from backend.experiments.searches.trial import LIVE, RunRow, TrialRow
from backend.experiments.sweep_values import Axis
from backend.metrics.series import Points
from benchmarks.evidence.store import recorded

CLAIM = "i"
AT_ONCE = 4
GOAL = "eval/accuracy"


@dataclass(frozen=True)
class Stored:
    """A run of the grid."""

    steps: int
    reports: Reports
    verdicts: dict[int, str]
    """By the step at which the diagnosis gave them while it trained."""

    @property
    def value(self) -> float:
        return value_of(self.reports) or 0.0


class Replayed(NamedTuple):
    """The outcome of a replay."""

    saved: float
    """Share of the steps of the first runs that were not trained."""
    lost_best: bool
    """Whether the preset with the best final value among those tried was pruned."""
    lost_winner: bool
    """Whether the search ends with another preset than it does without pruning."""
    regret: float
    """Accuracy of the best preset less that of the one it ends with, both as means of the three seeds."""


@cache
def grid() -> dict[tuple[str, int], Stored]:
    """The runs of the claim by preset and seed."""
    return {
        (one.variant, one.seed): _stored(result) for one, result in recorded().items() if one.claim == CLAIM
    }


def presets() -> list[str]:
    """Presets that have a run of every seed."""
    return sorted({name for name, _ in grid() if all((name, seed) in grid() for seed in seeds())})


def seeds() -> list[int]:
    """Seeds of the grid."""
    return sorted({seed for _, seed in grid()})


def _stored(result: Mapping[str, Any]) -> Stored:
    steps = np.array(result["steps"])
    series = {}
    for name, values in result["series"].items():
        known = np.array([value is not None for value in values])
        finite = np.array([float("nan") if value is None else float(value) for value in values])
        series[name] = Series(steps[known], finite[known])
    asked = result["asked"]
    config = resolve(asked["base"], asked["variant"], result["seed"])
    log = GrowingLog(
        config.model_dump(mode="json"), {name: each for name, each in series.items() if name in METRICS}
    )
    judged = [int(step) for step in steps if is_due(int(step))]
    points = Points(series[GOAL].steps, series[GOAL].values)
    return Stored(
        config.steps,
        reports_of(points, SearchSettings(), config.steps),
        {step: log.diagnosis(up_to=step).outcome.verdict for step in judged},
    )


def mean_value(preset: str) -> float:
    """Mean final accuracy of a preset over the seeds."""
    return float(np.mean([grid()[preset, seed].value for seed in seeds()]))


def search(settings: SearchSettings, *, cells: int, seed: int, first: int) -> tuple[list[TrialRow], float]:
    """The trials of a search that tries presets with the seed `first`, and the share of steps it saved."""
    axis = Axis(tuple(presets()))
    trials: list[TrialRow] = []
    while True:
        live = [trial for trial in trials if trial.state in LIVE]
        while len(live) < AT_ONCE and len(trials) < cells:
            point = next_point(trials, [axis], settings, seed)
            if point is None:
                break
            run = RunRow(f"{len(trials)}", point[0], point[0], first, "running", 60, reports={})
            trials.append(TrialRow(len(trials), point, point[0], run))
            live.append(trials[-1])
        if not live:
            break
        for trial in live:
            trials[trial.number] = _further(trial, first)
        _prune(trials, settings)
    steps = [(max(trial.reports, default=0), trial.run.steps) for trial in trials if trial.run]
    return trials, 1 - sum(done for done, _ in steps) / sum(whole for _, whole in steps)


def _further(trial: TrialRow, seed: int) -> TrialRow:
    """The trial an evaluation later."""
    stored = grid()[trial.variant, seed]
    reports = dict(list(stored.reports.items())[: len(trial.reports) + 1])
    step = max(reports, default=stored.steps)
    verdict = stored.verdicts.get(step)
    is_over = len(reports) == len(stored.reports)
    run = replace(
        _run_of(trial),
        reports=reports,
        verdict=verdict,
        judged_step=step,
        steps=stored.steps,
        status="finished" if is_over else "running",
    )
    return replace(trial, run=run)


def _run_of(trial: TrialRow) -> RunRow:
    if trial.run is None:
        raise LookupError(trial.variant)
    return trial.run


def _prune(trials: list[TrialRow], settings: SearchSettings) -> None:
    late = fallen_behind(trials, settings, 60)
    for trial in list(trials):
        reason = sickness(trial, settings) or ("behind" if late.get(trial.number) else "")
        seen = replace(trial, judged_step=max(trial.reports, default=0))
        if reason and trial.run is not None and trial.state in LIVE:
            seen = replace(seen, pruned=reason, run=replace(trial.run, status="stopped"))
        trials[trial.number] = seen


def winner(trials: Sequence[TrialRow], settings: SearchSettings, first: int) -> str:
    """The preset with the best mean over the further seeds, of the best three."""
    further = [seed for seed in seeds() if seed != first]
    best = best_of(trials, settings, settings.top)
    return max(best, key=lambda trial: sum(grid()[trial.variant, seed].value for seed in further)).variant


@cache
def _unpruned(sampler: str, cells: int, seed: int, first: int) -> tuple[list[TrialRow], str]:
    settings = SearchSettings.model_validate({"sampler": sampler, "pruner": "none", "prune_sick": False})
    trials, _ = search(settings, cells=cells, seed=seed, first=first)
    return trials, winner(trials, settings, first)


def replayed(settings: SearchSettings, *, cells: int, seed: int, first: int) -> Replayed:
    """One replay, beside the same search without pruning."""
    whole, best_whole = _unpruned(settings.sampler, cells, seed, first)
    trials, saved = search(settings, cells=cells, seed=seed, first=first)
    won = winner(trials, settings, first)
    best = best_of(whole, settings, 1)[0].variant
    pruned = {trial.variant for trial in trials if trial.state == "pruned"}
    most = max(mean_value(name) for name in presets())
    return Replayed(saved, best in pruned, won != best_whole, most - mean_value(won))
