"""Measure how much earlier the diagnosis detects a fall than the held-out accuracy."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from statistics import median
from typing import NamedTuple

from backend.analysis.diagnosis.diagnose import diagnose
from backend.analysis.diagnosis.log import Log
from backend.analysis.diagnosis.online import is_due
from benchmarks.diagnosis.recipes import HELD_OUT_PROBLEMS

ALARM_VERDICTS = frozenset({"collapsed", "declining"})
SIGNIFICANT_ERRORS = 3.0
"""Number of standard errors by which a held-out accuracy is significantly below the best."""


class Lead(NamedTuple):
    """Steps at which a fall was detected, or None if it was not."""

    by_diagnosis: int | None
    by_accuracy: int | None
    """Step of the first evaluation that is significantly below the best before it."""


def lead(log: Log) -> Lead:
    """Return the steps at which the diagnosis and the held-out accuracy show that a run falls."""
    return Lead(next(_alarms(log), None), next(_falls(log), None))


def _alarms(log: Log) -> Iterator[int]:
    last = max((int(series.steps[-1]) for series in log.series.values() if len(series)), default=0)
    for step in range(1, last + 1):
        if is_due(step):
            past_series = {name: series.between(0, step) for name, series in log.series.items()}
            if (
                diagnose(replace(log, series=past_series, status="", reason="")).outcome.verdict
                in ALARM_VERDICTS
            ):
                yield step


def _falls(log: Log) -> Iterator[int]:
    best = 0.0
    accuracy = log.series["eval/accuracy"]
    for step, evaluated_accuracy in zip(accuracy.steps, accuracy.values, strict=True):
        if best - evaluated_accuracy > surely_lower(best):
            yield int(step)
        best = max(best, float(evaluated_accuracy))


def surely_lower(best: float) -> float:
    """Return the difference of two accuracies on HELD_OUT_PROBLEMS problems that chance does not explain."""
    return SIGNIFICANT_ERRORS * math.sqrt(2 * max(best * (1 - best), 0.01) / HELD_OUT_PROBLEMS)


def lead_table(fallen_logs: Iterable[Log], healthy: Iterable[Log]) -> list[str]:
    """Return the judgements every 10 steps before the end of fallen and healthy runs, as a table."""
    leads = [lead(log) for log in fallen_logs]
    gained_steps = sorted(
        run_lead.by_accuracy - run_lead.by_diagnosis
        for run_lead in leads
        if run_lead.by_diagnosis is not None and run_lead.by_accuracy is not None
    )
    tenth = len(gained_steps) // 10
    spread = (
        f"{median(gained_steps):g} ({gained_steps[tenth]} to {gained_steps[-1 - tenth]})"
        if gained_steps
        else "none"
    )
    is_alarmed = [run_lead.by_diagnosis is not None for run_lead in leads]
    is_detected = [run_lead.by_accuracy is not None for run_lead in leads]
    false_alarms = [run_lead.by_diagnosis is not None for run_lead in map(lead, healthy)]
    return [
        "| judged every 10 steps while it trains | |",
        "|---|---|",
        f"| falls called collapsed or declining | {sum(is_alarmed)} of {len(is_alarmed)} |",
        f"| falls that an evaluation shows, one every 10 steps | {sum(is_detected)} of {len(is_detected)} |",
        f"| steps from the alarm to that evaluation, median (8 in 10 runs) | {spread} |",
        (
            "| healthy runs called collapsed or declining at any time "
            f"| {sum(false_alarms)} of {len(false_alarms)} |"
        ),
    ]
