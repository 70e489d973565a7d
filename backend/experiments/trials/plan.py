"""Plan a trial: first and last step of its runs, the change of each arm, and the cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, comb, inf
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from backend.analysis.diagnosis.diagnose import UNHEALTHY_VERDICTS, diagnose
from backend.analysis.diagnosis.findings import Diagnosis, RankedCause
from backend.analysis.diagnosis.log import Log
from backend.analysis.diagnosis.store import load_log
from backend.base.errors import Conflict, FieldError, InvalidConfig, InvalidRequest, RunNotFound
from backend.base.settings import Settings
from backend.config.merge import merge, nest_paths
from backend.config.run import RunConfig
from backend.experiments.estimates import estimates
from backend.experiments.launch import MAX_STEPS_TOGETHER
from backend.experiments.trials.fork_point import ForkPoint, fork_point
from backend.experiments.trials.schemas import ArmRequest, TrialRequest
from backend.runs.checks import resolve_runnable
from backend.runs.children import forked_config
from backend.runs.origin import refuse_imported
from backend.storage.models import Run

SEED_LIMIT = 2**31

SIGNIFICANCE_LEVEL = 0.05

RESERVED_FIELDS = ("seed", "steps", "stop_rules")
"""Fields that the trial sets itself: all runs end at one step, unless their numbers are no longer finite."""


class Arm(NamedTuple):
    """A change to test; the config is None if the change is refused."""

    name: str
    changes: dict[str, Any]
    config: RunConfig | None


@dataclass(frozen=True, slots=True)
class TrialPlan:
    """A trial before it starts."""

    run: Run
    diagnosis: Diagnosis
    cause: RankedCause | None
    alarm: int
    point: ForkPoint
    steps: int
    base: RunConfig | None
    """The run's config up to `steps`; None if these steps are refused."""
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    one_by_one: bool
    notes: tuple[str, ...]
    errors: tuple[FieldError, ...]


def plan_trial(session: Session, settings: Settings, run_id: str, request: TrialRequest) -> TrialPlan:
    """Return the plan with the errors that prevent its start; raise Conflict if there is nothing to test."""
    run = session.get(Run, run_id)
    if run is None or run.deleting_at is not None:
        raise RunNotFound(run_id)
    refuse_imported(run, "forked")
    log = load_log(session, run_id)
    diagnosis = diagnose(log)
    if diagnosis.outcome.verdict not in UNHEALTHY_VERDICTS:
        verdict = diagnosis.outcome.verdict.replace("_", " ")
        raise Conflict(f"the diagnosis of {run.name} is {verdict}: there is nothing to try a remedy against")
    cause = _choose_cause(diagnosis, request.cause)
    config = resolve_runnable(settings, run.config)
    point = fork_point(session, settings, run, config, last_healthy(diagnosis))
    alarm = first_alarm(log, diagnosis)
    steps = request.steps or _default_steps(config, diagnosis, alarm, point.step)
    errors: list[FieldError] = []
    common = common_changes(run, steps)
    base = _fork_config(settings, run, point, common, "", errors)
    requested_arms = request.arms
    if requested_arms is None:
        requested_arms = ranked_arms(diagnosis) if request.one_by_one else default_arms(diagnosis, cause)
    arms = tuple(
        Arm(arm.name, arm.changes, _arm_config(settings, run, point, common, base, number, arm, errors))
        for number, arm in enumerate(requested_arms)
    )
    if not arms:
        errors.append(FieldError("arms", "is empty: write down at least one change to try"))
    total_steps = (steps - point.step) * _count_runs(request.seeds, len(arms))
    if total_steps > MAX_STEPS_TOGETHER:
        reason = f"makes {total_steps:,} steps in total; expected at most {MAX_STEPS_TOGETHER:,}"
        errors.append(FieldError("steps", reason))
    seeds = tuple((run.seed + 1 + number) % SEED_LIMIT for number in range(request.seeds))
    notes = tuple(_notes(run, config, diagnosis, cause, alarm, steps, len(seeds)))
    return TrialPlan(
        run,
        diagnosis,
        cause,
        alarm,
        point,
        steps,
        base,
        arms,
        seeds,
        request.one_by_one,
        notes,
        tuple(errors),
    )


def common_changes(run: Run, steps: int) -> dict[str, Any]:
    """Return the changes of all runs of a trial: their last step and stop rules, of which only `non_finite`
    stays.
    """
    rules = [rule for rule in run.config.get("stop_rules", ()) if rule["type"] == "non_finite"]
    return {"steps": steps, "stop_rules": rules}


def _choose_cause(diagnosis: Diagnosis, name: str) -> RankedCause | None:
    """Return the cause with this name, or the first cause; None if the diagnosis has none."""
    root_causes = [ranked_cause for ranked_cause in diagnosis.causes if not ranked_cause.explained_by]
    if not name:
        return root_causes[0] if root_causes else None
    for ranked_cause in root_causes:
        if ranked_cause.finding.cause == name:
            return ranked_cause
    names = ", ".join(ranked_cause.finding.cause for ranked_cause in root_causes) or "none"
    raise InvalidRequest([FieldError("cause", f"is {name!r}; the causes of this run are: {names}")])


def default_arms(diagnosis: Diagnosis, cause: RankedCause | None) -> list[ArmRequest]:
    """Return the remedies of the cause and of the first independent cause that are changes of the config."""
    arms = []
    if cause is not None and cause.remedy.changes:
        arms.append(ArmRequest(name="remedy", changes=cause.remedy.changes))
    for ranked_cause in diagnosis.causes:
        is_rival = ranked_cause is not cause and not ranked_cause.explained_by and ranked_cause.remedy.changes
        if is_rival and (cause is None or ranked_cause.remedy.changes != cause.remedy.changes):
            return [*arms, ArmRequest(name="second remedy", changes=ranked_cause.remedy.changes)]
    return arms


def ranked_arms(diagnosis: Diagnosis) -> list[ArmRequest]:
    """Return the remedies of all independent causes that are changes of the config, in their order."""
    changes: list[dict[str, Any]] = []
    for ranked_cause in diagnosis.causes:
        if (
            not ranked_cause.explained_by
            and ranked_cause.remedy.changes
            and ranked_cause.remedy.changes not in changes
        ):
            changes.append(ranked_cause.remedy.changes)
    return [
        ArmRequest(name=name, changes=change) for name, change in zip(REMEDY_NAMES, changes, strict=False)
    ]


REMEDY_NAMES = ("remedy", "second remedy", "third remedy", "fourth remedy")

HEALED_SHARE = 0.8
"""Share of the runs of an arm that have to stay healthy for it to heal."""


def healthy_runs_needed(seeds: int) -> int:
    """Return the number of runs, of `seeds` runs, that have to stay healthy for an arm to heal."""
    return ceil(HEALED_SHARE * seeds)


def last_healthy(diagnosis: Diagnosis) -> int:
    """Return the last step from which a fork is certainly healthy: before the first signal and the fall."""
    healthy_steps = [
        onset.healthy for onset in (diagnosis.onset, diagnosis.outcome.onset) if onset is not None
    ]
    return min(healthy_steps, default=0)


def first_alarm(log: Log, diagnosis: Diagnosis) -> int:
    """Return the first step at which the log up to then is judged ill, found by bisection.

    For a run that never learned, it is the last step.
    """
    last = max((int(series.steps[-1]) for series in log.series.values() if len(series)), default=0)
    fall = diagnosis.outcome.onset
    if fall is None or diagnosis.outcome.verdict == "never_learned":
        return last
    healthy, ill = fall.healthy, last
    while ill - healthy > 1:
        middle = (healthy + ill) // 2
        if diagnose(_cut_log(log, middle)).outcome.verdict in UNHEALTHY_VERDICTS - {"never_learned"}:
            ill = middle
        else:
            healthy = middle
    return ill


def _cut_log(log: Log, step: int) -> Log:
    series = {name: series.between(-inf, step) for name, series in log.series.items()}
    return replace(log, series=series)


def _default_steps(config: RunConfig, diagnosis: Diagnosis, alarm: int, fork_step: int) -> int:
    """Return the last step: twice as far after the onset as the alarm, or the end with a schedule."""
    if config.optimizer.schedule != "constant":
        return config.steps
    onset = last_healthy(diagnosis)
    target = max(onset + 2 * (alarm - onset), fork_step + 1, config.optimizer.warmup_steps)
    return max(min(target, config.steps), alarm)


def _arm_config(
    settings: Settings,
    run: Run,
    point: ForkPoint,
    shared_changes: Mapping[str, Any],
    base: RunConfig | None,
    number: int,
    arm: ArmRequest,
    errors: list[FieldError],
) -> RunConfig | None:
    """Return the config of an arm; None, and an error, if it is invalid or equal to that of the run."""
    path = f"arms.{number}.changes"
    changes = nest_paths(arm.changes)
    if reserved_fields := [name for name in RESERVED_FIELDS if name in changes]:
        errors.append(FieldError(f"{path}.{reserved_fields[0]}", "is set by the trial"))
        return None
    config = (
        _fork_config(settings, run, point, merge(changes, shared_changes), path, errors) if base else None
    )
    if config is not None and base is not None and config.with_(preset=base.preset) == base:
        errors.append(FieldError(path, "changes nothing: these are the values of the run"))
        return None
    return config


def _fork_config(
    settings: Settings,
    run: Run,
    point: ForkPoint,
    changes: Mapping[str, Any],
    path: str,
    errors: list[FieldError],
) -> RunConfig | None:
    try:
        return forked_config(settings, run, point.step, changes)
    except InvalidConfig as error:
        config_errors = (
            FieldError(f"{path}.{error_.path}".strip("."), error_.message) for error_ in error.errors
        )
        errors += [error_ for error_ in config_errors if error_ not in errors]
        return None


def _notes(
    run: Run,
    config: RunConfig,
    diagnosis: Diagnosis,
    cause: RankedCause | None,
    alarm: int,
    steps: int,
    seeds: int,
) -> Sequence[str]:
    notes = []
    if cause is None:
        notes.append("The diagnosis names no cause: write down what to try.")
    elif not cause.remedy.changes:
        notes.append("This remedy is not a field of the config: change the data or the reward, and try that.")
    if steps < alarm:
        notes.append(f"The trouble showed at step {alarm}: a trial that ends at step {steps} may not see it.")
    if config.optimizer.schedule != "constant" and steps != config.steps:
        notes.append(
            f"The {config.optimizer.schedule} schedule ends with the run: with {steps} steps instead of "
            f"{config.steps} the learning rates are not those of {run.name}."
        )
    if diagnosis.outcome.goal == "reward/mean":
        notes.append("Judged by the reward alone: an arm that hacks it counts as spared.")
    if min_p_value(seeds) > SIGNIFICANCE_LEVEL:
        notes.append(
            f"With {seeds} per arm, p is at least {min_p_value(seeds):.2g}: no result can be significant."
        )
    return notes


def min_p_value(seeds: int) -> float:
    """Return Fisher's one-sided p-value if all runs of one arm fall and none of the other."""
    return 1 / comb(2 * seeds, seeds)


def _count_runs(seeds: int, arms: int) -> int:
    """Return the number of runs: one for each arm and one unchanged per seed, and the repetition."""
    return seeds * (1 + arms) + 1


def estimate_price(session: Session, settings: Settings, plan: TrialPlan) -> dict[str, Any]:
    """Return a `schemas.TrialPrice`, scaled from the estimates of complete runs to the trained steps."""
    count = len(plan.seeds)
    configs = [(plan.base, count + 1), *((arm.config, count) for arm in plan.arms)]
    trained_steps = plan.steps - plan.point.step
    price: dict[str, Any] = dict.fromkeys(("seconds_low", "seconds_high", "disk_bytes"), 0.0)
    price["checkpoint_bytes"] = 0.0
    for config, runs in configs:
        if config is None:
            continue
        estimate = estimates(session, config, settings)
        for name in ("seconds_low", "seconds_high", "disk_bytes"):
            price[name] += (estimate[name] or 0.0) * runs * trained_steps / config.steps
        size = estimate["checkpoint_bytes"]
        checkpoint_bytes = price["checkpoint_bytes"]
        price["checkpoint_bytes"] = (
            None if size is None or checkpoint_bytes is None else checkpoint_bytes + size * runs
        )
    runs = _count_runs(count, len(plan.arms))
    return price | {"runs": runs, "steps": runs * max(trained_steps, 0), "least_p": min_p_value(count)}
