"""Start the next arm of a trial that tries remedies one by one, after the previous arm failed to heal."""

from sqlalchemy import select

from backend.base.errors import Conflict, InvalidConfig, RunNotFound
from backend.base.settings import Settings
from backend.config.merge import merge, nest_paths
from backend.experiments.launch import queue_runs
from backend.experiments.trials.fork_point import ForkPoint
from backend.experiments.trials.launch import lock_runs, planned_run
from backend.experiments.trials.plan import common_changes
from backend.runs.children import forked_config
from backend.runs.events import add_event
from backend.storage.engine import Sessions
from backend.storage.models import Trial


def start_next_arm(sessions: Sessions, settings: Settings, trial_id: str) -> str:
    """Queue the runs of the next waiting arm; return the reason if that is impossible."""
    with sessions.begin() as session:
        trial = session.scalar(select(Trial).where(Trial.id == trial_id).with_for_update())
        arm = next((arm for arm in trial.arms if arm.get("is_pending")), None) if trial is not None else None
        if trial is None or arm is None or trial.experiment_id is None:
            return ""
        point = ForkPoint(trial.fork_run, trial.fork_step, trial.due_step, trial.words)
        try:
            run = lock_runs(session, trial.run_id, point)
            changes = merge(nest_paths(arm["changes"]), common_changes(run, trial.steps))
            config = forked_config(settings, run, trial.fork_step, changes)
        except (Conflict, InvalidConfig, RunNotFound) as error:
            return str(error)
        parent = trial.fork_run or run.id
        step = trial.fork_step if trial.fork_run else None
        planned_runs = [planned_run(run, arm["name"], config, seed, parent, step) for seed in trial.seeds]
        queue_runs(session, trial.experiment_id, planned_runs, {"tags": ["trial"]})
        trial.arms = [
            other_arm | {"is_pending": False} if other_arm is arm else other_arm for other_arm in trial.arms
        ]
        message = f"the {arm['name']} is tried in {len(planned_runs)} runs: the arm before it did not heal"
        add_event(session, "trial", message, run_id=run.id, data={"trial": trial.id})
        return ""
