"""Load the results of evaluations during runs and of later evaluations of their checkpoints."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.analysis.evaluations.schemas import EvaluationItem, EvaluationPage
from backend.config.evaluation import RESERVED_SUITE_NAMES
from backend.config.metrics import has_interval, interval_names
from backend.metrics.reading import read_points
from backend.metrics.series import Points
from backend.storage.models import Checkpoint, Run
from backend.storage.numbers import spell

EVALUATION_PREFIX = "eval/"
MAX_STEPS = 100
"""Maximum number of steps of a suite per run, in addition to the first and the best step."""

MAX_CHECKPOINT_EVALUATIONS = 1_000
"""Maximum number of checkpoint evaluations that are read."""

HELD_OUT_METRICS = ("accuracy", "length_mean", "truncated_frac")
"""Metrics of the held-out set, in addition to pass@k."""


class EvaluatedStep(NamedTuple):
    """An evaluated step of a run, and the run and step under which the result is stored."""

    run: str
    step: int
    source: str
    source_step: int


def load_evaluations(session: Session, run_ids: Sequence[str]) -> EvaluationPage:
    """Return the latest result of each evaluated step of runs, in the order of the ids."""
    children = _load_children(session, run_ids)
    checkpoint_by_source = {child: (parent, step) for child, parent, step in children}
    sources = [*run_ids, *checkpoint_by_source]
    names = _load_names(session, sources)
    points = read_points(
        session, sources, sorted({name for names_of_run in names.values() for name in names_of_run})
    )
    by_suite: dict[tuple[str, str], dict[int, tuple[EvaluatedStep, dict[str, float]]]] = defaultdict(dict)
    for source in sources:
        # evaluations of checkpoints come last, oldest first, so that newer results replace older ones
        for (suite, step), values in _values_by_suite(points, source, names[source]).items():
            run, evaluated_step = checkpoint_by_source.get(source, (source, step))
            by_suite[run, suite][evaluated_step] = EvaluatedStep(run, evaluated_step, source, step), values
    checkpoint_steps = _checkpoint_steps(session, run_ids)
    items, left_out = [], 0
    for run, suite in sorted(
        by_suite, key=lambda run_and_suite: (run_ids.index(run_and_suite[0]), run_and_suite[1])
    ):
        results = by_suite[run, suite]
        best = max(results, key=lambda step: (_accuracy(results[step][1]), step))
        shown_steps = set(sorted(results)[-MAX_STEPS:]) | {min(results), best}
        left_out += len(results) - len(shown_steps)
        items += [
            _item(suite, *results[step], has_checkpoint=step in checkpoint_steps[run], is_best=step == best)
            for step in sorted(shown_steps)
        ]
    return EvaluationPage(items=items, left_out=left_out)


def _load_children(session: Session, run_ids: Sequence[str]) -> list[tuple[str, str, int]]:
    """Return (id, run, step) of the newest evaluations of the runs' checkpoints, oldest first."""
    query = select(Run.id, Run.parent_run, Run.fork_step).where(
        Run.parent_run.in_(run_ids),
        Run.fork_step.is_not(None),
        Run.steps == 0,
        Run.check_hash.is_(None),
        Run.deleted_at.is_(None),
        Run.deleting_at.is_(None),
    )
    newest = session.execute(query.order_by(Run.id.desc()).limit(MAX_CHECKPOINT_EVALUATIONS)).all()
    return [(row.id, row.parent_run or "", row.fork_step or 0) for row in reversed(newest)]


def _load_names(session: Session, run_ids: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of the evaluation metrics that each run has recorded."""
    query = select(Run.id, Run.summary).where(Run.id.in_(list(run_ids)))
    last_values = {row.id: (row.summary or {}).get("last", {}) for row in session.execute(query)}
    evaluation_names = {
        run: [name for name in last_values.get(run, {}) if _parse_metric(name)] for run in run_ids
    }
    return {run: [*names, *_ends(names)] for run, names in evaluation_names.items()}


def _ends(names: Sequence[str]) -> list[str]:
    return [end for name in names if has_interval(name) for end in interval_names(name)]


def _parse_metric(name: str) -> tuple[str, str] | None:
    """Return the suite and the short name of a metric, or None if the table does not show it."""
    segments = name.removeprefix(EVALUATION_PREFIX).split("/") if name.startswith(EVALUATION_PREFIX) else []
    if len(segments) == 2 and segments[0] not in RESERVED_SUITE_NAMES:
        return segments[0], segments[1]
    is_shown = len(segments) == 1 and (segments[0] in HELD_OUT_METRICS or segments[0].startswith("pass_at_"))
    return ("", segments[0]) if is_shown else None


def _values_by_suite(
    points: Mapping[tuple[str, str], Points], source: str, names: Sequence[str]
) -> dict[tuple[str, int], dict[str, float]]:
    """Return the values by metric for each (suite, step)."""
    values_by_suite: dict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    for name in names:
        suite, metric = _parse_metric(name) or ("", "")
        if (stored_points := points.get((source, name))) is not None:
            for step, value in zip(stored_points.steps.tolist(), stored_points.values.tolist(), strict=True):
                values_by_suite[suite, step][metric] = value
    return values_by_suite


def _checkpoint_steps(session: Session, run_ids: Sequence[str]) -> dict[str, set[int]]:
    steps: dict[str, set[int]] = {run: set() for run in run_ids}
    query = select(Checkpoint.run_id, Checkpoint.step).where(Checkpoint.run_id.in_(run_ids))
    for row in session.execute(query):
        steps[row.run_id].add(row.step)
    return steps


def _accuracy(values: Mapping[str, float]) -> float:
    accuracy = values.get("accuracy", math.nan)
    return accuracy if math.isfinite(accuracy) else -math.inf


def _item(
    suite: str,
    evaluated_step: EvaluatedStep,
    values: Mapping[str, float],
    *,
    has_checkpoint: bool,
    is_best: bool,
) -> EvaluationItem:
    interval_ends = {name: interval_names(name) for name in values}
    intervals = {
        name: [spell(values[low]), spell(values[high])]
        for name, (low, high) in interval_ends.items()
        if low in values and high in values
    }
    interval_metrics = {end for name in intervals for end in interval_ends[name]}
    return EvaluationItem(
        **evaluated_step._asdict(),
        suite=suite,
        values={name: spell(value) for name, value in values.items() if name not in interval_metrics},
        intervals=intervals,
        source_kind=f"{EVALUATION_PREFIX}{suite}".removesuffix("/"),
        has_checkpoint=has_checkpoint,
        is_best=is_best,
    )
