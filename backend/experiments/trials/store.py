"""Database queries for trials, and the verdicts that are stored when all runs have ended."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Select, and_, exists, or_, select
from sqlalchemy.orm import Session, aliased

from backend.analysis.diagnosis.signs import TITLES
from backend.base.errors import NotFound
from backend.base.settings import Settings
from backend.experiments.trials.next_arm import start_next_arm
from backend.experiments.trials.schemas import TrialVerdict
from backend.experiments.trials.verdict import judge_trial
from backend.http.paging import iso_time, read_cursor
from backend.runs.events import add_event
from backend.runs.lifecycle import ENDED_STATUSES
from backend.storage.engine import Sessions, db_now, open_read_session
from backend.storage.models import Run, Trial


def list_trials(session: Session, *, run: str, experiment: str, limit: int, cursor: str) -> Sequence[Trial]:
    """Return a page of trials of a run, an experiment or all, newest first, and one additional trial."""
    query = select(Trial).join(Run, Run.id == Trial.run_id).where(Run.deleting_at.is_(None))
    if run:
        query = query.where(Trial.run_id == run)
    if experiment:
        query = query.where(Trial.experiment_id == experiment)
    if last_key := read_cursor(cursor, str):
        query = query.where(Trial.id < last_key[0])
    return session.scalars(query.order_by(Trial.id.desc()).limit(limit + 1)).all()


def find_trial(session: Session, trial_id: str) -> Trial:
    """Return a trial; raise NotFound if it does not exist."""
    trial = session.get(Trial, trial_id)
    if trial is None:
        raise NotFound(f"there is no trial {trial_id!r}")
    return trial


def trial_json(session: Session, trial: Trial) -> dict[str, Any]:
    """Return a trial as `schemas.TrialItem`, with its stored verdict or one from the current runs."""
    verdict = (
        trial.verdict if trial.judged_at is not None else judge_trial(session, trial).model_dump(mode="json")
    )
    onset = {"healthy": trial.onset_healthy, "sick": trial.onset_sick}
    return {
        "id": trial.id,
        "run": trial.run_id,
        "run_name": session.scalar(select(Run.name).where(Run.id == trial.run_id)) or "",
        "experiment": trial.experiment_id,
        "initial_verdict": trial.initial_verdict,
        "cause": trial.cause,
        "title": TITLES.get(trial.cause, ""),
        "onset": onset if trial.onset_sick is not None else None,
        "fork": {
            "run": trial.fork_run,
            "step": trial.fork_step,
            "due_step": trial.due_step,
            "words": trial.words,
        },
        "steps": trial.steps,
        "seeds": trial.seeds,
        "created_at": iso_time(trial.created_at),
        "judged_at": iso_time(trial.judged_at),
        "verdict": verdict,
    }


def _due_trials() -> Select[str]:
    sibling = aliased(Run)
    is_active = and_(
        sibling.status.not_in(ENDED_STATUSES), sibling.deleted_at.is_(None), sibling.deleting_at.is_(None)
    )
    same_experiment = sibling.experiment_id == Trial.experiment_id
    needs_verdict = or_(
        Trial.judged_at.is_(None),
        exists().where(same_experiment, sibling.status == "finished", sibling.finished_at > Trial.judged_at),
    )
    return (
        select(Trial.id)
        .join(Run, Run.id == Trial.run_id)
        .where(Run.deleting_at.is_(None), Trial.experiment_id.is_not(None), needs_verdict)
        .where(~exists().where(same_experiment, is_active))
        .order_by(Trial.id)
    )


_DUE_TRIALS = _due_trials()


def due_trials(session: Session) -> list[str]:
    """Return the trials whose runs have all ended and whose verdict is missing or outdated."""
    return list(session.scalars(_DUE_TRIALS))


def settle_trial(sessions: Sessions, settings: Settings, trial_id: str) -> bool:
    """Judge a trial, and store a complete verdict or start the next arm; return whether it was stored."""
    with open_read_session(sessions) as session:
        trial = session.get(Trial, trial_id)
        if trial is None:
            return False
        verdict = judge_trial(session, trial)
        judged_at = trial.judged_at
    if not verdict.complete and any(arm.is_pending for arm in verdict.arms) and _is_complete(verdict):
        failure_reason = start_next_arm(sessions, settings, trial_id)
        if not failure_reason:
            return False
        sentence = f"The next remedy could not be tried: {failure_reason}."
        verdict = verdict.model_copy(update={"complete": True, "sentences": [*verdict.sentences, sentence]})
    return verdict.complete and _store(sessions, trial_id, verdict, judged_at)


def _is_complete(verdict: TrialVerdict) -> bool:
    return verdict.repeat.state != "waiting" and not any(arm.waiting for arm in verdict.arms)


def _store(
    sessions: Sessions, trial_id: str, verdict: TrialVerdict, expected_judged_at: float | None
) -> bool:
    with sessions.begin() as session:
        trial = session.scalar(select(Trial).where(Trial.id == trial_id).with_for_update())
        if trial is None or trial.judged_at != expected_judged_at:
            return False
        trial.verdict = verdict.model_dump(mode="json")
        trial.judged_at = session.scalar(select(db_now()))
        data = {"trial": trial.id, "experiment": trial.experiment_id}
        add_event(session, "trial", verdict.sentences[0], run_id=trial.run_id, data=data)
        return True
