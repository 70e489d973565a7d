"""Decisions of a search that do not need Optuna, as pure functions of its rows."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from backend.experiments.search_settings import SearchSettings
from backend.experiments.searches.trial import DONE_STATUSES, LIVE_STATUSES, RunRow, TrialRow
from backend.experiments.sweep import Sweep

MAX_REFUSED = 20
"""Number of consecutive configurations that cannot run after which a search ends."""
MAX_FAILED = 5
"""Number of runs without a value after which a search without values ends."""
FALLEN_VERDICTS = ("collapsed", "declining")
HALF = 0.5


class SearchRow(NamedTuple):
    """A search and the request that started it."""

    experiment_id: str
    name: str
    status: str
    revision: int
    base: dict[str, Any]
    variant: dict[str, Any]
    sweep: Sweep
    seeds: tuple[int, ...]
    run_fields: dict[str, Any]
    """Priority, tags and notes of every run."""
    reason: str = ""
    ended_at: float | None = None

    @property
    def settings(self) -> SearchSettings:
        """Settings of the search."""
        return self.sweep.search

    @property
    def is_active(self) -> bool:
        """Whether the search may still make decisions."""
        return self.status in ("searching", "comparing")


def stop_reason(trial: TrialRow, settings: SearchSettings) -> str:
    """Return the reason to stop a live run because of its diagnosis or values; empty if there is none."""
    run = trial.run
    if run is None or run.status not in LIVE_STATUSES or trial.pruned or run.requested_action:
        return ""
    newest = next(reversed(trial.reports.values()), 0.0)
    if settings.pruner != "none" and not math.isfinite(newest):
        return f"{settings.metric} is not finite"
    if not settings.prune_sick:
        return ""
    if run.verdict in FALLEN_VERDICTS or (
        run.verdict == "never_learned" and run.judged_step >= HALF * run.steps
    ):
        verdict = str(run.verdict).replace("_", " ")
        return f"the diagnosis says {verdict} at step {run.judged_step}"
    return ""


def prune_reason(trial: TrialRow, settings: SearchSettings) -> str:
    """Return a sentence about a run that the pruner stops."""
    step, value = next(reversed(trial.reports.items()))
    reference = (
        "the median of the finished runs" if settings.pruner == "median" else "the best third at its rung"
    )
    return f"{settings.metric} {value:.4g} at step {step} is behind {reference}"


def wants_another(trials: Sequence[TrialRow], settings: SearchSettings, *, is_slot_free: bool) -> bool:
    """Return whether another run may be queued, one at a time and only if it can start soon."""
    live = [trial for trial in trials if trial.state in LIVE_STATUSES]
    if not live:
        return True
    is_any_queued = any(trial.state == "queued" for trial in live)
    return is_slot_free and not is_any_queued and len(live) < settings.max_active_runs


def end_reason(trials: Sequence[TrialRow], sweep: Sweep) -> str:
    """Return a sentence why no additional configuration is tried; empty if one may be tried."""
    if len(trials) >= sweep.cells:
        return f"{sweep.cells} configurations were tried, as asked"
    last_trials = trials[-MAX_REFUSED:]
    if len(last_trials) == MAX_REFUSED and all(trial.state == "refused" for trial in last_trials):
        return f"the last {MAX_REFUSED} configurations cannot be run: {last_trials[-1].refused}"
    valueless_trials = [trial for trial in trials if trial.state in ("failed", "no value")]
    if len(valueless_trials) >= MAX_FAILED and not any(
        trial.reports for trial in trials if trial not in valueless_trials
    ):
        reason = _failure_reason(valueless_trials[-1])
        return (
            f"none of the first {len(valueless_trials)} runs has a value of {sweep.search.metric}: {reason}"
        )
    return ""


def _failure_reason(trial: TrialRow) -> str:
    run = trial.run
    if run is None or run.status != "failed":
        return "it was not measured, or is not finite"
    return run.reason or "they failed"


def best_trials(trials: Sequence[TrialRow], settings: SearchSettings, limit: int) -> list[TrialRow]:
    """Return the configurations with the best values, best first; ties go to the earlier."""
    sign = -1.0 if settings.maximizes else 1.0
    valued_trials = [(trial.value, trial) for trial in trials if trial.value is not None]
    return [trial for _, trial in sorted(valued_trials, key=lambda pair: (sign * pair[0], pair[1].number))][
        :limit
    ]


def repeated_runs(search: SearchRow, trials: Sequence[TrialRow], runs: Sequence[RunRow]) -> list[RunRow]:
    """Return the runs of the finalists with the remaining seeds."""
    names = {trial.variant for trial in trials if trial.chosen}
    firsts = {trial.run.id for trial in trials if trial.run is not None}
    return [
        run for run in runs if run.variant in names and run.id not in firsts and run.seed in search.seeds[1:]
    ]


def is_compared(runs: Sequence[RunRow]) -> bool:
    """Return whether all of these runs have ended."""
    return all(run.status in (*DONE_STATUSES, "failed") for run in runs)
