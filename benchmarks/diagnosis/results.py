"""Figures of the suite: detected falls, ranked causes, dated onsets, and false alarms."""

import math
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from backend.analysis.diagnosis.diagnose import diagnose
from backend.analysis.diagnosis.findings import Diagnosis
from backend.analysis.diagnosis.log import Log, Series
from benchmarks.diagnosis.controls import (
    CHANGE_BY_VIEW,
    CONTROL_CHANGES,
    LEVEL_CONTROL_CHANGES,
    Change,
    can_be_named,
    half_withheld,
    level_window,
    unchanged,
)
from benchmarks.diagnosis.lead import lead_table, surely_lower
from benchmarks.diagnosis.peers import alarms
from benchmarks.diagnosis.recipes import (
    ALL_PLANTS,
    LATER_PLANTS,
    PLANT_BY_NAME,
    PLANTED_STEP,
    RECIPE_BY_NAME,
    Planted,
    Split,
)

BAD_VERDICTS = frozenset({"collapsed", "declining", "recovered", "never_learned"})


class Judged(NamedTuple):
    """A run of the suite with its label and diagnosis."""

    key: Planted
    has_fallen: bool
    """Whether the held-out accuracy ended below half of its best, or never rose."""
    diagnosis: Diagnosis
    log: Log

    @property
    def is_ill(self) -> bool:
        """True if the verdict is that something went wrong."""
        return self.diagnosis.outcome.verdict in BAD_VERDICTS

    @property
    def cause(self) -> str:
        """Planted cause, or "" in a healthy run."""
        return ALL_PLANTS[self.key.plant].cause if self.key.plant else ""

    @property
    def rank(self) -> int:
        """Rank of the planted cause from 1, or 0 if it is not among the causes."""
        names = [cause.finding.cause for cause in self.diagnosis.causes]
        return names.index(self.cause) + 1 if self.cause in names else 0

    @property
    def onset_error(self) -> int | None:
        """Steps between the planted step and the onset's interval, or None without an onset."""
        if self.diagnosis.onset is None:
            return None
        planted_step = PLANTED_STEP if ALL_PLANTS[self.key.plant].when == "mid" else 1
        low, high = self.diagnosis.onset
        return max(low - planted_step, planted_step - high, 0)


def make_log(result: Mapping[str, Any]) -> Log:
    """Return the log of a recorded run."""
    steps = np.array(result["steps"])
    series = {}
    for name, values in result["series"].items():
        has_value = np.array([metric_value is not None for metric_value in values])
        numbers = np.array(
            [math.nan if metric_value is None else float(metric_value) for metric_value in values]
        )
        series[name] = Series(steps[has_value], numbers[has_value])
    return Log(series, result["config"], result["status"], result["reason"])


def judge_split(
    results: Mapping[Planted, Mapping[str, Any]], split: Split, change: Change = unchanged
) -> list[Judged]:
    """Return each run of a part with its label and the diagnosis of its changed log."""
    split_results = {
        key: result
        for key, result in results.items()
        if RECIPE_BY_NAME[key.recipe].split == split and key.plant not in LATER_PLANTS
    }
    return _judge_results(split_results, change)


def _judge_results(results: Mapping[Planted, Mapping[str, Any]], change: Change = unchanged) -> list[Judged]:
    judged_runs = []
    for key, result in sorted(results.items()):
        log = make_log(result)
        has_fallen = _fell(log.series["eval/accuracy"].values)
        judged_runs.append(Judged(key, has_fallen, diagnose(change(log, key)), log))
    return judged_runs


def _fell(accuracy: Any) -> bool:
    best, end = float(np.max(accuracy)), float(accuracy[-1])
    never_rose = best - float(accuracy[0]) < surely_lower(best)
    return never_rose or (end <= 0.5 * best and best - end > surely_lower(best))


def interval(hits: int, count: int, level: float = 0.95) -> tuple[float, float]:
    """Return the Clopper-Pearson interval of a share."""
    tail = (1 - level) / 2
    low = 0.0 if hits == 0 else _where(lambda p: 1 - _cumulative(hits - 1, count, p) - tail)
    high = 1.0 if hits == count else _where(lambda p: tail - _cumulative(hits, count, p))
    return low, high


def _where(rises: Any) -> float:
    """Return the share at which an increasing function is 0."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if rises(middle) < 0 else (low, middle)
    return low


def _cumulative(hits: int, count: int, p: float) -> float:
    return sum(math.comb(count, k) * p**k * (1 - p) ** (count - k) for k in range(hits + 1))


def report(results: Mapping[Planted, Mapping[str, Any]], split: Split) -> str:
    """Return the tables of a part."""
    runs = judge_split(results, split)
    healthy_runs, fallen_runs = _healthy(runs), _fallen(runs)
    unharmed_runs = [run for run in runs if run.key.plant and not run.has_fallen]
    unlearned_count = len(runs) - len(healthy_runs) - len(fallen_runs) - len(unharmed_runs)
    unlearned_note = (
        f" {unlearned_count} runs without a fault never learned and are left out." if unlearned_count else ""
    )
    lines = [
        (
            f"{len(runs)} runs: {len(healthy_runs)} healthy; {len(fallen_runs)} with a fault fell, "
            f"{len(unharmed_runs)} unharmed.{unlearned_note}"
        ),
        "",
        "| | runs | share | 95 % interval |",
        "|---|---|---|---|",
        share_row("falls that are found", (run.is_ill for run in fallen_runs)),
        share_row("healthy runs reported as broken", (run.is_ill for run in healthy_runs)),
        share_row("injected fault named first", (run.rank == 1 for run in fallen_runs)),
        share_row("injected fault among the first two causes", (0 < run.rank <= 2 for run in fallen_runs)),
        share_row(
            "runs without a verdict", (run.diagnosis.outcome.verdict == "inconclusive" for run in runs)
        ),
        share_row("harmless faults, reported as broken", (run.is_ill for run in unharmed_runs)),
        "",
        "| fault | fell | found | cause first | among two | rightly named | onset off, median | 9 in 10 |",
        "|---|---|---|---|---|---|---|---|",
        *(
            _row(name, [run for run in fallen_runs if run.key.plant == name], fallen_runs)
            for name in PLANT_BY_NAME
        ),
        f"| all | {len(fallen_runs)} | | | | | {_errors(fallen_runs)} |",
        "",
        *lead_table([run.log for run in fallen_runs], [run.log for run in healthy_runs]),
        "",
        *_views(results, split),
        "",
        *_peers(runs),
    ]
    return "\n".join(lines)


def later_report(results: Mapping[Planted, Mapping[str, Any]]) -> str:
    """Return the table of the later plants, or "" if none of them is trained."""
    runs = _judge_results({key: result for key, result in results.items() if key.plant in LATER_PLANTS})
    if not runs:
        return ""
    fallen_runs = [run for run in runs if run.has_fallen]
    unharmed_runs = [run for run in runs if not run.has_fallen]
    ill_count = sum(run.is_ill for run in unharmed_runs)
    summary = (
        f"{len(runs)} runs with faults that were injected later, by the same recipes and detectors, counted "
        f"only here: {len(fallen_runs)} fell, {len(unharmed_runs)} unharmed, "
        f"of which {ill_count} are reported as broken."
    )
    lines = [
        summary,
        "",
        "| injected later | fell | found | cause first | among two | onset off, median | 9 in 10 |",
    ]
    lines += ["|---|---|---|---|---|---|---|"]
    lines += [_row(name, [run for run in fallen_runs if run.key.plant == name]) for name in LATER_PLANTS]
    return "\n".join(lines)


def _healthy(runs: Iterable[Judged]) -> list[Judged]:
    return [run for run in runs if not run.key.plant and not run.has_fallen]


def _fallen(runs: Iterable[Judged]) -> list[Judged]:
    return [run for run in runs if run.key.plant and run.has_fallen]


def _views(results: Mapping[Planted, Mapping[str, Any]], split: Split) -> list[str]:
    """Return the figures with less and less of each log, and alarms in runs without events."""
    lines = [
        "| the log holds | falls found | healthy reported as broken | cause first | among two | no verdict |",
        "|---|---|---|---|---|---|",
    ]
    for name, change in CHANGE_BY_VIEW.items():
        runs = judge_split(results, split, change)
        healthy_runs, fallen_runs = _healthy(runs), _fallen(runs)
        cells = (
            _format_share(run.is_ill for run in fallen_runs),
            _format_share(run.is_ill for run in healthy_runs),
            _format_share(run.rank == 1 for run in fallen_runs),
            _format_share(0 < run.rank <= 2 for run in fallen_runs),
            _format_share(run.diagnosis.outcome.verdict == "inconclusive" for run in runs),
        )
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, "", *_rate_half_withheld(results, split), "", *_controls(results, split)]


def _rate_half_withheld(results: Mapping[Planted, Mapping[str, Any]], split: Split) -> list[str]:
    """Return the causes named with half of the metrics, if these include one that the cause requires."""
    fallen_runs = _fallen(judge_split(results, split, half_withheld))
    nameable_runs = [run for run in fallen_runs if can_be_named(half_withheld(run.log, run.key), run.cause)]
    return [
        "| half of the metrics, one that the injected fault requires among them | share | 95 % interval |",
        "|---|---|---|",
        _rate("cause first", [run.rank == 1 for run in nameable_runs]),
        _rate("among the first two", [0 < run.rank <= 2 for run in nameable_runs]),
    ]


def _controls(results: Mapping[Planted, Mapping[str, Any]], split: Split) -> list[str]:
    """Return alarms in healthy runs without any event."""
    lines = [
        (
            "| healthy runs with | called collapsed, declining or recovered | 95 % interval "
            "| of these the accuracy fell | no verdict |"
        ),
        "|---|---|---|---|---|",
    ]
    for name, change in (CONTROL_CHANGES | LEVEL_CONTROL_CHANGES).items():
        runs = _healthy(judge_split(results, split, change))
        if name in LEVEL_CONTROL_CHANGES:
            runs = [run for run in runs if level_window(run.log) is not None]
        is_called = [run.diagnosis.outcome.verdict in BAD_VERDICTS - {"never_learned"} for run in runs]
        ill_logs = (change(run.log, run.key) for run, is_ill in zip(runs, is_called, strict=True) if is_ill)
        inconclusive_share = _format_share(run.diagnosis.outcome.verdict == "inconclusive" for run in runs)
        lines.append(
            f"{_rate(name, is_called)} {_format_share(map(_lost, ill_logs))} | {inconclusive_share} |"
        )
    return lines


def _rate(title: str, hits: list[bool]) -> str:
    """Return title, share and interval as the cells of a row."""
    low, high = interval(sum(hits), len(hits)) if hits else (0.0, 1.0)
    return f"| {title} | {_format_share(hits)} | {low:.0%} to {high:.0%} |"


def _lost(log: Log) -> bool:
    """Return True if the last evaluation is significantly below the first."""
    first, *_, last = log.series["eval/accuracy"].values
    return bool(first - last > surely_lower(first))


def _peers(runs: list[Judged]) -> list[str]:
    """Return falls and false alarms of other detectors on the same runs."""
    healthy_runs, fallen_runs = _healthy(runs), _fallen(runs)
    lines = ["| detector | falls found | healthy reported as broken | 95 % interval |", "|---|---|---|---|"]
    alarms_by_detector = {
        "this diagnosis": ([run.is_ill for run in fallen_runs], [run.is_ill for run in healthy_runs])
    }
    on_fallen, on_healthy = (
        alarms([run.log for run in fallen_runs]),
        alarms([run.log for run in healthy_runs]),
    )
    alarms_by_detector |= {name: (on_fallen[name], on_healthy[name]) for name in on_fallen}
    for name, (hits, false_alarms) in alarms_by_detector.items():
        low, high = interval(sum(false_alarms), len(false_alarms)) if false_alarms else (0.0, 1.0)
        lines.append(
            f"| {name} | {_format_share(hits)} | {_format_share(false_alarms)} | {low:.0%} to {high:.0%} |"
        )
    return lines


def _format_share(hits: Iterable[bool]) -> str:
    outcomes = list(hits)
    return f"{sum(outcomes)} of {len(outcomes)} ({sum(outcomes) / len(outcomes):.0%})" if outcomes else "none"


def share_row(title: str, hits: Iterable[bool]) -> str:
    """Return a table row with hits, total and the Clopper-Pearson interval."""
    outcomes = list(hits)
    if not outcomes:
        return f"| {title} | 0 | | |"
    count, total = sum(outcomes), len(outcomes)
    low, high = interval(count, total)
    return f"| {title} | {count} of {total} | {count / total:.0%} | {low:.0%} to {high:.0%} |"


def _row(name: str, runs: list[Judged], fallen_runs: list[Judged] | None = None) -> str:
    """Return the figures of a plant and, for all fallen runs, how often the cause is named correctly."""
    ill_count = sum(run.is_ill for run in runs)
    first_count, top_two_count = sum(run.rank == 1 for run in runs), sum(0 < run.rank <= 2 for run in runs)
    cause = ALL_PLANTS[name].cause
    cells = [f"{name}: {cause}", *map(str, (len(runs), ill_count, first_count, top_two_count))]
    if fallen_runs is not None:
        named_runs = [
            run
            for run in fallen_runs
            if run.diagnosis.causes and run.diagnosis.causes[0].finding.cause == cause
        ]
        cells.append(_format_share(run.cause == cause for run in named_runs))
    return f"| {' | '.join(cells)} | {_errors(runs)} |"


def _errors(runs: Iterable[Judged]) -> str:
    """Return median and 90th percentile of the onset errors in steps, as two cells."""
    errors = sorted(error for run in runs if (error := run.onset_error) is not None)
    return f"{median(errors):g} | {errors[math.ceil(0.9 * len(errors)) - 1]}" if errors else "|"
