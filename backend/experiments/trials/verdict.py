"""Judge a trial by the number of runs of each arm in which the trouble recurred.

A run is a recurrence if its diagnosis is collapsed, declining, recovered (it fell and recovered) or never
learned. Its log begins with the steps inherited from before the onset, so its fall came after the fork. A run
is spared if it ended healthy. A run that failed or was stopped is a recurrence if it fell before; otherwise
it is counted separately, like runs without a verdict and deleted runs. All runs appear in the table.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Literal, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.analysis.diagnosis.diagnose import UNHEALTHY_VERDICTS, diagnose
from backend.analysis.diagnosis.store import load_log
from backend.base.errors import RunNotFound
from backend.experiments.trials.fisher import fisher
from backend.experiments.trials.plan import healthy_runs_needed
from backend.experiments.trials.repetition import first_difference
from backend.experiments.trials.schemas import NO_CHANGE, REPEAT, ArmResult, RepeatResult, TrialVerdict
from backend.experiments.trials.sentences import sentences
from backend.metrics.ending import curve_end
from backend.metrics.reading import read_curves
from backend.runs.lifecycle import ENDED_STATUSES
from backend.storage.models import Run, Trial

Outcome = Literal["waiting", "recurred", "spared", "unjudged", "failed", "stopped", "deleted"]


class JudgedRun(NamedTuple):
    """A run of an arm and its outcome."""

    outcome: Outcome
    goal: str = ""
    end: float | None = None
    """Final value of the goal; None if the run has not ended."""


def judge_trial(session: Session, trial: Trial) -> TrialVerdict:
    """Return the verdict from the current state of the runs."""
    runs: dict[str, list[Run]] = defaultdict(list)
    if trial.experiment_id is not None:
        for run in session.scalars(select(Run).where(Run.experiment_id == trial.experiment_id)):
            runs[run.variant].append(run)
    arms = [{"name": NO_CHANGE, "changes": {}, "is_pending": False}, *trial.arms]
    runs_by_arm = {arm["name"]: [judge_run(session, run) for run in runs[arm["name"]]] for arm in arms}
    repeat = _compare_repeat(session, trial, runs[REPEAT])
    is_waiting = repeat.state == "waiting" or any(
        run.outcome == "waiting" for arm_runs in runs_by_arm.values() for run in arm_runs
    )
    goals = [run.goal for arm_runs in runs_by_arm.values() for run in arm_runs if run.goal]
    goal = max(goals, key=goals.count, default="")
    counts = [_count_outcomes(arm, runs_by_arm[arm["name"]], len(trial.seeds), goal) for arm in arms]
    results = counts if is_waiting else [counts[0], *(_add_p_value(arm, counts[0]) for arm in counts[1:])]
    is_open = any(arm.is_pending for arm in counts) and healing_arm(counts) is None
    complete = not is_waiting and not is_open
    verdict = TrialVerdict(complete=complete, goal=goal, arms=results, repeat=repeat, sentences=[])
    next_cause = _next_cause(session, trial) if complete and healing_arm(counts) is None else ""
    return verdict.model_copy(update={"sentences": sentences(trial.initial_verdict, verdict, next_cause)})


def healing_arm(arms: Sequence[ArmResult]) -> ArmResult | None:
    """Return the first arm with enough healthy runs, or None."""
    return next(
        (arm for arm in arms[1:] if arm.planned and arm.spared >= healthy_runs_needed(arm.planned)), None
    )


def _next_cause(session: Session, trial: Trial) -> str:
    """Return the title of the first independent cause whose remedy was not tried; empty if there is none."""
    tried_changes = [arm["changes"] for arm in trial.arms]
    try:
        causes = diagnose(load_log(session, trial.run_id)).causes
    except RunNotFound:
        return ""
    untried_titles = (
        ranked_cause.finding.title
        for ranked_cause in causes
        if not ranked_cause.explained_by
        and ranked_cause.finding.cause != trial.cause
        and ranked_cause.remedy.changes not in tried_changes
    )
    return next(untried_titles, "")


def judge_run(session: Session, run: Run) -> JudgedRun:
    """Return the outcome of a run according to its own diagnosis."""
    is_over = run.status in ENDED_STATUSES
    if run.deleting_at is not None or (run.deleted_at is not None and not is_over):
        return JudgedRun("deleted")
    if not is_over:
        return JudgedRun("waiting")
    outcome = diagnose(load_log(session, run.id)).outcome
    return JudgedRun(
        _outcome(run.status, outcome.verdict), outcome.goal, _read_goal_end(session, run.id, outcome.goal)
    )


def _read_goal_end(session: Session, run_id: str, goal: str) -> float | None:
    """Return the final value of the goal, as in tables and the matrix; None if it is not finite."""
    curve = read_curves(session, [run_id], [goal], "step").get((run_id, goal)) if goal else None
    end = None if curve is None else curve_end(goal, curve)
    return end if end is not None and math.isfinite(end) else None


def _outcome(status: str, verdict: str) -> Outcome:
    if verdict in UNHEALTHY_VERDICTS and not (status != "finished" and verdict == "never_learned"):
        return "recurred"
    if status == "failed":
        return "failed"
    if status == "stopped":
        return "stopped"
    return "spared" if verdict == "healthy" else "unjudged"


def _count_outcomes(
    arm: Mapping[str, Any], runs: Sequence[JudgedRun], planned_count: int, goal: str
) -> ArmResult:
    outcomes = [run.outcome for run in runs]
    goal_ends = [run.end for run in runs if run.goal == goal and run.end is not None]
    planned_count = 0 if arm.get("is_pending") else planned_count
    return ArmResult(
        name=arm["name"],
        changes=arm["changes"],
        is_pending=bool(arm.get("is_pending")),
        planned=planned_count,
        waiting=outcomes.count("waiting"),
        recurred=outcomes.count("recurred"),
        spared=outcomes.count("spared"),
        unjudged=outcomes.count("unjudged"),
        failed=outcomes.count("failed"),
        stopped=outcomes.count("stopped"),
        deleted=outcomes.count("deleted") + planned_count - len(runs),
        goal_end=fmean(goal_ends) if goal_ends else None,
        p=None,
    )


def _add_p_value(arm: ArmResult, control: ArmResult) -> ArmResult:
    """Return the arm with its p-value if both arms have judged runs, else unchanged."""
    count, control_count = arm.recurred + arm.spared, control.recurred + control.spared
    if not count or not control_count:
        return arm
    p = fisher(arm.recurred, count, control.recurred, control_count)
    return arm.model_copy(update={"p": p})


def _compare_repeat(session: Session, trial: Trial, runs: Sequence[Run]) -> RepeatResult:
    """Return whether the repetition with the same seed is equal to the original run."""
    parent = session.get(Run, trial.run_id)
    if not runs or parent is None or parent.deleting_at is not None or runs[0].deleting_at is not None:
        return RepeatResult(state="unknown")
    run = runs[0]
    if run.status not in ENDED_STATUSES:
        return RepeatResult(state="unknown" if run.deleted_at is not None else "waiting")
    if run.last_step <= trial.fork_step:
        return RepeatResult(state="unknown")
    last_common_step = trial.fork_step if trial.fork_run else -1
    difference = first_difference(session, parent, run, after_step=last_common_step)
    if difference is None:
        return RepeatResult(state="repeats")
    return RepeatResult(state="differs", step=difference.step, metric=difference.metric)
