"""Resolve the lineage of curves. The curve of a fork begins with those
of its ancestors up to the fork step.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Row, select
from sqlalchemy.orm import Session

from backend.storage.models import Run

ALL_STEPS = 2**31 - 1
"""Largest step that a database column can hold."""


_ORIGINS = select(
    Run.id, Run.parent_run, Run.fork_step, Run.steps, Run.changed_at, Run.attempt, Run.last_step
)


class LineageSegment(NamedTuple):
    """A run whose points up to a step are part of a curve."""

    run: str
    last_step: int = ALL_STEPS


def load_lineages(
    session: Session, runs: Iterable[str], row_by_run: Mapping[str, Row[Any]] | None = None
) -> dict[str, list[LineageSegment]]:
    """Return the runs whose points make up each run's curves: its ancestors, oldest first, and the run
    itself.

    An evaluation has no ancestors, because it does not train. `row_by_run` has the rows of some runs, as
    returned by `load_names`.
    """
    runs = list(runs)
    origins = {
        row.id: origin for row in _load_ancestry(session, runs, row_by_run) if (origin := _fork_origin(row))
    }
    return {run: _build_segments(run, origins) for run in runs}


def load_stamps(
    session: Session, runs: Iterable[str], row_by_run: Mapping[str, Row[Any]] | None = None
) -> list[tuple[Any, ...]]:
    """Return values of these runs and their ancestors that change with every new point of their curves."""
    rows = _load_ancestry(session, runs, row_by_run)
    return sorted((row.id, row.changed_at, row.attempt, row.last_step) for row in rows)


def _load_ancestry(
    session: Session, runs: Iterable[str], row_by_run: Mapping[str, Row[Any]] | None = None
) -> list[Row[Any]]:
    """Return the rows of these runs and all of their ancestors, without duplicates."""
    ancestry = dict(row_by_run or {})
    unknown_runs = (set(runs) | _parents(ancestry.values())) - ancestry.keys()
    while unknown_runs:
        rows: list[Any] = list(session.execute(_ORIGINS.where(Run.id.in_(unknown_runs))))
        ancestry |= {row.id: row for row in rows}
        unknown_runs = _parents(rows) - ancestry.keys()
    return list(ancestry.values())


def _parents(rows: Iterable[Row[Any]]) -> set[str]:
    return {origin.run for row in rows if (origin := _fork_origin(row))}


def _fork_origin(row: Row[Any]) -> LineageSegment | None:
    """Return the parent of a fork and the fork step, or None if the run is not a fork."""
    if row.steps > 0 and row.parent_run is not None and row.fork_step is not None:
        return LineageSegment(row.parent_run, row.fork_step)
    return None


def _build_segments(run: str, origins: dict[str, LineageSegment]) -> list[LineageSegment]:
    """Return the stretches of a run and its ancestors, oldest first. Cycles are cut."""
    segments, seen_runs = [LineageSegment(run)], {run}
    while (origin := origins.get(segments[0].run)) is not None and origin.run not in seen_runs:
        seen_runs.add(origin.run)
        segments.insert(0, LineageSegment(origin.run, min(origin.last_step, segments[0].last_step)))
    return segments
