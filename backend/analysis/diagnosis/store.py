"""Logs of runs out of SQL, and verdicts into their rows."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from sqlalchemy import and_, or_, select, update
from sqlalchemy.orm import Session

from backend.analysis.diagnosis.detectors import VERSION
from backend.analysis.diagnosis.diagnose import diagnose
from backend.analysis.diagnosis.findings import Diagnosis
from backend.analysis.diagnosis.log import Log, Series, is_read
from backend.analysis.diagnosis.news import News, first_cause, verdict_news
from backend.base.errors import RunNotFound
from backend.metrics.lineage import load_lineages
from backend.metrics.reading import read_curves
from backend.metrics.windows import load_metric_names
from backend.runs.events import add_event
from backend.runs.origin import has_run_config
from backend.storage.engine import Sessions, reading
from backend.storage.models import Run

logger = logging.getLogger(__name__)

HAS_NO_TRAINER = or_(
    Run.status.in_(("paused", "finished", "stopped", "failed")),
    and_(Run.status == "running", Run.writer.is_not(None)),
)
"""Condition in SQL: the run is at rest or pushed. The verdict of all others is stored by their trainer."""

AT_ONCE = 100
"""Runs that are looked up at a time."""


def log_of(session: Session, run_id: str) -> Log:
    """Return the log of a run; a fork's begins with the steps it inherited."""
    run = session.get(Run, run_id)
    if run is None or run.deleting_at is not None:
        raise RunNotFound(run_id)
    series = {metric: points.thinned() for metric, points in series_of(session, run_id).items()}
    config = run.config if has_run_config(run) else {}  # another trainer's fields mean other things
    return Log(series, config, run.status, run.reason, run.origin, parent_config_of(session, run_id))


def parent_config_of(session: Session, run_id: str) -> Mapping[str, Any]:
    """Return the config of the run that a fork continued; empty if there is none any more."""
    run = session.get(Run, run_id)
    parent = session.get(Run, run.parent_run) if run is not None and run.parent_run else None
    return parent.config if parent is not None and has_run_config(parent) else {}


def series_of(session: Session, run_id: str) -> dict[str, Series]:
    """Return the recorded points of every metric that a detector reads."""
    runs = [stretch.run for stretch in load_lineages(session, [run_id])[run_id]]
    metrics = [metric for metric in load_metric_names(session, runs) if is_read(metric)]
    curves = read_curves(session, [run_id], metrics, "step")
    return {metric: Series(curve.steps, curve.values) for (_, metric), curve in curves.items()}


def columns_of(diagnosis: Diagnosis | None, step: int | None) -> dict[str, Any]:
    """Return the columns of a run's row that hold its diagnosis after a step; None: there is none."""
    onset = diagnosis.onset if diagnosis else None
    return {
        "verdict": diagnosis.outcome.verdict if diagnosis else None,
        "onset_healthy": onset.healthy if onset else None,
        "onset_sick": onset.sick if onset else None,
        "cause": first_cause(diagnosis) if diagnosis else "",
        "judged_step": step,
        "judged_by": VERSION,
    }


def diagnosis_of(log: Log, name: str) -> Diagnosis | None:
    """Return the diagnosis; None, and a line in the service's log, if a detector fails."""
    try:
        return diagnose(log)
    except Exception:  # the run is stored, and all others are judged, all the same
        logger.exception("run %s cannot be diagnosed", name)
        return None


class Judged(NamedTuple):
    """The diagnosis of a run that no trainer of ours judges, as its row holds it."""

    run_id: str
    last_step: int
    changed_at: float
    """`changed_at` of the run's row when it was read."""
    columns: dict[str, Any]
    news: News | None
    """New verdict of a pushed run, which is judged while it trains."""


def judge_run(session: Session, run_id: str) -> Judged:
    """Diagnose a run by what is recorded; raises RunNotFound."""
    columns = (Run.last_step, Run.changed_at, Run.steps, Run.writer, Run.verdict)
    row = session.execute(select(*columns).where(Run.id == run_id)).one_or_none()
    if row is None:
        raise RunNotFound(run_id)
    diagnosis = None
    if row.last_step and row.steps:
        diagnosis = diagnosis_of(log_of(session, run_id), run_id)
    was = row.verdict or "inconclusive"
    told = verdict_news(was, diagnosis) if row.writer is not None and diagnosis else None
    return Judged(run_id, row.last_step, row.changed_at, columns_of(diagnosis, row.last_step), told)


def store_verdict(session: Session, judged: Judged) -> None:
    """Write it into the run's row, unless the run trains again or has changed."""
    columns = dict(judged.columns)
    if columns["verdict"] is None:
        columns["changed_at"] = Run.changed_at  # no page shows a difference
    is_same = and_(Run.last_step == judged.last_step, Run.changed_at == judged.changed_at)
    still = and_(Run.id == judged.run_id, HAS_NO_TRAINER, is_same)
    stored = session.scalar(update(Run).where(still).values(**columns).returning(Run.id))
    if stored is not None and (told := judged.news) is not None:
        add_event(
            session, "diagnosis", told.message, run_id=judged.run_id, level=told.level,
            step=judged.last_step, data=told.data,
        )  # fmt: skip


def unjudged(session: Session) -> list[str]:
    """Some of the runs without a trainer of ours whose verdict is missing, or of other steps or detectors."""
    is_due = or_(Run.judged_step.is_distinct_from(Run.last_step), Run.judged_by != VERSION)
    query = select(Run.id).where(HAS_NO_TRAINER, is_due, Run.deleting_at.is_(None))
    return list(session.scalars(query.limit(AT_ONCE)))


def judge_runs(sessions: Sessions, run_ids: Sequence[str]) -> Iterator[None]:
    """Judge these runs one after the other, each in a transaction of its own."""
    for run_id in run_ids:
        with suppress(RunNotFound):  # deleted meanwhile
            with reading(sessions) as session:
                judged = judge_run(session, run_id)
            with sessions.begin() as session:
                store_verdict(session, judged)
        yield
