"""Lineage of curves: a fork shows those of the runs it comes from, up to the step at which it left them."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.db.models import Run

ALL_STEPS = 2**31 - 1


class Stretch(NamedTuple):
    """A run whose points belong to a curve, up to a step."""

    run: str
    last_step: int = ALL_STEPS


def lineages(session: Session, runs: Iterable[str]) -> dict[str, list[Stretch]]:
    """The runs that make up each run's curves: its ancestors from the oldest on, then the run itself.

    An evaluation has no ancestors: it begins with another run's policy, but it trains nothing.
    """
    runs = list(runs)
    origins: dict[str, Stretch] = {}
    unknown = set(runs)
    while unknown:
        query = select(Run.id, Run.parent_run, Run.fork_step).where(Run.id.in_(unknown), Run.steps > 0)
        found = {
            run: Stretch(parent, step)
            for run, parent, step in session.execute(query)
            if parent is not None and step is not None
        }
        origins |= found
        unknown = {origin.run for origin in found.values()} - origins.keys()
    return {run: _stretches(run, origins) for run in runs}


def stamps_of(session: Session, runs: Iterable[str]) -> list[tuple[Any, ...]]:
    """Stamps of these runs and their ancestors: they change with every point of the curves."""
    involved = {part.run for parts in lineages(session, runs).values() for part in parts}
    query = select(Run.id, Run.changed_at, Run.attempt, Run.last_step).where(Run.id.in_(involved))
    return sorted(tuple(row) for row in session.execute(query))


def _stretches(run: str, origins: dict[str, Stretch]) -> list[Stretch]:
    stretches = [Stretch(run)]
    while (origin := origins.get(stretches[0].run)) is not None:
        stretches.insert(0, Stretch(origin.run, min(origin.last_step, stretches[0].last_step)))
    return stretches
