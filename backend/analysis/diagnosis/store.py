"""Read the logs of runs from the database, and store their verdicts."""

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
from backend.storage.engine import Sessions, open_read_session
from backend.storage.models import Run

logger = logging.getLogger(__name__)

HAS_NO_TRAINER = or_(
    Run.status.in_(("paused", "finished", "stopped", "failed")),
    and_(Run.status == "running", Run.writer.is_not(None)),
)
"""SQL condition for runs that are not running or are pushed. All other verdicts are stored by the trainer."""

MAX_RUNS_PER_QUERY = 100
"""Maximum number of runs in one query."""


def load_log(session: Session, run_id: str) -> Log:
    """Return the log of a run, including the inherited steps of a fork. Raises RunNotFound."""
    run = session.get(Run, run_id)
    if run is None or run.deleting_at is not None:
        raise RunNotFound(run_id)
    series = {metric: points.thinned() for metric, points in load_series(session, run_id).items()}
    config = run.config if has_run_config(run) else {}  # the fields of other trainers have other meanings
    return Log(series, config, run.status, run.reason, run.origin, load_parent_config(session, run_id))


def load_parent_config(session: Session, run_id: str) -> Mapping[str, Any]:
    """Return the config of the parent of a fork, or {} if there is none."""
    run = session.get(Run, run_id)
    parent = session.get(Run, run.parent_run) if run is not None and run.parent_run else None
    return parent.config if parent is not None and has_run_config(parent) else {}


def load_series(session: Session, run_id: str) -> dict[str, Series]:
    """Return the recorded points of all metrics that detectors read."""
    runs = [segment.run for segment in load_lineages(session, [run_id])[run_id]]
    metrics = [metric for metric in load_metric_names(session, runs) if is_read(metric)]
    curves = read_curves(session, [run_id], metrics, "step")
    return {metric: Series(curve.steps, curve.values) for (_, metric), curve in curves.items()}


def make_columns(diagnosis: Diagnosis | None, step: int | None) -> dict[str, Any]:
    """Return the column values of a run's row for a diagnosis after a step, or for no diagnosis."""
    onset = diagnosis.onset if diagnosis else None
    return {
        "verdict": diagnosis.outcome.verdict if diagnosis else None,
        "onset_healthy": onset.healthy if onset else None,
        "onset_sick": onset.sick if onset else None,
        "cause": first_cause(diagnosis) if diagnosis else "",
        "judged_step": step,
        "judged_by": VERSION,
    }


def try_diagnosis(log: Log, name: str) -> Diagnosis | None:
    """Return the diagnosis of a log. If a detector fails, log the error and return None."""
    try:
        return diagnose(log)
    except Exception:  # the run must still be stored, and other runs judged
        logger.exception("run %s cannot be diagnosed", name)
        return None


class Judged(NamedTuple):
    """The diagnosis of a run that is not judged by its trainer, ready to be stored."""

    run_id: str
    last_step: int
    changed_at: float
    """Value of `changed_at` in the run's row when it was read."""
    columns: dict[str, Any]
    news: News | None
    """Change of the verdict of a pushed run, or None."""


def judge_run(session: Session, run_id: str) -> Judged:
    """Diagnose a run from its recorded metrics. Raises RunNotFound."""
    columns = (Run.last_step, Run.changed_at, Run.steps, Run.writer, Run.verdict)
    row = session.execute(select(*columns).where(Run.id == run_id)).one_or_none()
    if row is None:
        raise RunNotFound(run_id)
    diagnosis = None
    if row.last_step and row.steps:
        diagnosis = try_diagnosis(load_log(session, run_id), run_id)
    old_verdict = row.verdict or "inconclusive"
    verdict_change = verdict_news(old_verdict, diagnosis) if row.writer is not None and diagnosis else None
    return Judged(
        run_id, row.last_step, row.changed_at, make_columns(diagnosis, row.last_step), verdict_change
    )


def store_verdict(session: Session, judgement: Judged) -> None:
    """Store a diagnosis in the run's row, unless the run is training again or has changed."""
    columns = dict(judgement.columns)
    if columns["verdict"] is None:
        columns["changed_at"] = Run.changed_at  # pages need no update
    is_unchanged = and_(Run.last_step == judgement.last_step, Run.changed_at == judgement.changed_at)
    can_store = and_(Run.id == judgement.run_id, HAS_NO_TRAINER, is_unchanged)
    stored_id = session.scalar(update(Run).where(can_store).values(**columns).returning(Run.id))
    if stored_id is not None and (verdict_change := judgement.news) is not None:
        add_event(
            session, "diagnosis", verdict_change.message, run_id=judgement.run_id, level=verdict_change.level,
            step=judgement.last_step, data=verdict_change.data,
        )  # fmt: skip


def find_unjudged_runs(session: Session) -> list[str]:
    """Return ids of runs that need a diagnosis, because it is missing or of other steps or detectors."""
    is_due = or_(Run.judged_step.is_distinct_from(Run.last_step), Run.judged_by != VERSION)
    query = select(Run.id).where(HAS_NO_TRAINER, is_due, Run.deleting_at.is_(None))
    return list(session.scalars(query.limit(MAX_RUNS_PER_QUERY)))


def judge_runs(sessions: Sessions, run_ids: Sequence[str]) -> Iterator[None]:
    """Judge runs one by one, each in a separate transaction, and yield after each."""
    for run_id in run_ids:
        with suppress(RunNotFound):  # deleted in the meantime
            with open_read_session(sessions) as session:
                judgement = judge_run(session, run_id)
            with sessions.begin() as session:
                store_verdict(session, judgement)
        yield
