"""Use Optuna to choose the next configuration of a search and to find the runs that fall behind.

The study is rebuilt from the rows in memory. Importing this module takes a third of a second.
"""

import math
import random
from collections.abc import Sequence
from itertools import product
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.trial import TrialState

from backend.experiments.search_settings import SearchSettings
from backend.experiments.searches.objective import final_value
from backend.experiments.searches.trial import DONE_STATUSES, LIVE_STATUSES, TrialRow
from backend.experiments.sweep_values import Axis, value_key

optuna.logging.set_verbosity(optuna.logging.ERROR)

MAX_TRIES = 30
"""Number of proposals of the sampler that are checked for being untried before one is drawn at random."""
DRAWS = 2000
MAX_LISTED = 10_000
STARTUP_TRIALS = 10
"""Number of randomly drawn configurations before TPE uses the results, which is Optuna's default."""
REDUCTION_FACTOR = 3
"""Reduction factor of successive halving: a third of the runs continue at each rung."""
MIN_FINISHED = 3
"""Minimum number of finished runs for the median pruner."""


def next_point(
    trials: Sequence[TrialRow], axes: Sequence[Axis], settings: SearchSettings, seed: int
) -> tuple[Any, ...] | None:
    """Return the values of the knobs to try next, determined by the rows and the seed; None if all were
    tried.
    """
    spaces = {f"{index}": _distribution(axis) for index, axis in enumerate(axes)}
    tried_keys = {value_key(list(trial.point)) for trial in trials}
    study = _study(_sampler(settings, _mix_seed(seed, len(trials))), settings)
    for trial in trials:
        if (frozen_trial := _freeze_trial(trial, axes, spaces)) is not None:
            study.add_trial(frozen_trial)
    for _ in range(MAX_TRIES):
        proposal = study.ask(fixed_distributions=spaces)
        point = tuple(_value_at(axis, proposal.params[f"{index}"]) for index, axis in enumerate(axes))
        if value_key(list(point)) not in tried_keys:
            return point
    return _draw_untried(axes, tried_keys, random.Random(_mix_seed(seed, len(trials))))


def find_prunable(trials: Sequence[TrialRow], settings: SearchSettings, steps: int) -> dict[int, bool]:
    """Return for each live trial with new values whether the pruner would stop it now.

    Values that were judged before are reported first, then the new values in the order of their steps.
    """
    study = _study(optuna.samplers.RandomSampler(seed=0), settings, _pruner(settings, steps))
    running_trials: dict[int, optuna.Trial] = {}
    prune_by_number: dict[int, bool] = {}
    reported_trials = [trial for trial in trials if trial.reports and trial.state != "deleted"]
    for trial in sorted(reported_trials, key=lambda row: row.state in LIVE_STATUSES):  # ended trials first
        study.enqueue_trial({})
        optuna_trial = study.ask()
        is_live = trial.state in LIVE_STATUSES
        for step, value in _finite_values(trial).items():
            if not is_live or step <= trial.judged_step:
                optuna_trial.report(value, step)
                optuna_trial.should_prune()  # records the rungs that the trial has reached
        if is_live:
            running_trials[trial.number] = optuna_trial
        elif trial.state in DONE_STATUSES:
            study.tell(optuna_trial, final_value(trial.reports))
        else:
            study.tell(optuna_trial, state=TrialState.PRUNED if trial.state == "pruned" else TrialState.FAIL)
    new_values = [
        (step, trial.number, value)
        for trial in reported_trials
        if trial.number in running_trials
        for step, value in _finite_values(trial).items()
        if step > trial.judged_step
    ]
    for step, number, value in sorted(new_values):
        running_trials[number].report(value, step)
        prune_by_number[number] = running_trials[number].should_prune() or prune_by_number.get(number, False)
    return prune_by_number


def _study(
    sampler: optuna.samplers.BaseSampler,
    settings: SearchSettings,
    pruner: optuna.pruners.BasePruner | None = None,
) -> optuna.Study:
    directions = optuna.study.StudyDirection
    direction = directions.MAXIMIZE if settings.maximizes else directions.MINIMIZE
    storage = optuna.storages.InMemoryStorage()
    return optuna.create_study(storage=storage, sampler=sampler, pruner=pruner, direction=direction)


def _sampler(settings: SearchSettings, seed: int) -> optuna.samplers.BaseSampler:
    if settings.sampler == "random":
        return optuna.samplers.RandomSampler(seed=seed)
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP_TRIALS, constant_liar=True)


def _pruner(settings: SearchSettings, steps: int) -> optuna.pruners.BasePruner:
    first = max(1, round(settings.first_rung * steps))
    match settings.pruner:
        case "median":
            return optuna.pruners.MedianPruner(n_startup_trials=MIN_FINISHED, n_warmup_steps=first)
        case "halving":
            return optuna.pruners.SuccessiveHalvingPruner(
                min_resource=first, reduction_factor=REDUCTION_FACTOR
            )
    return optuna.pruners.NopPruner()


def _mix_seed(seed: int, number: int) -> int:
    """Return the seed of a decision, derived from the seed of the search and the number of earlier trials."""
    return random.Random(f"{seed}/{number}").getrandbits(31)


def _distribution(axis: Axis) -> BaseDistribution:
    """Return the distribution of a knob; numbers keep their order, and other values are categories."""
    if axis.range is None:
        indices = range(len(axis.listed_values))
        if len(axis.listed_values) > 1 and all(_is_number(value) for value in axis.listed_values):
            return IntDistribution(0, len(axis.listed_values) - 1)
        return CategoricalDistribution(tuple(indices))
    if axis.range.count:
        return IntDistribution(0, axis.range.count - 1)
    return FloatDistribution(0.0, 1.0)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _sorted_values(axis: Axis) -> list[Any]:
    """Return the listed values; numbers are sorted."""
    is_numeric = all(_is_number(value) for value in axis.listed_values)
    return sorted(axis.listed_values) if is_numeric else list(axis.listed_values)


def _value_at(axis: Axis, index: Any) -> Any:
    """Return the value of a knob at an index that Optuna has chosen."""
    if axis.range is None:
        return _sorted_values(axis)[index]
    return axis.range.value_at(index) if axis.range.count else axis.range.value(index)


def _find_index(axis: Axis, value: Any) -> Any:
    """Return the index of a value; None if the knob does not have it."""
    if axis.range is not None:
        return axis.range.find_position(value)
    key = value_key(value)
    return next(
        (index for index, listed_value in enumerate(_sorted_values(axis)) if value_key(listed_value) == key),
        None,
    )


def _freeze_trial(
    trial: TrialRow, axes: Sequence[Axis], spaces: dict[str, BaseDistribution]
) -> optuna.trial.FrozenTrial | None:
    """Return the trial for the sampler; None if the trial has no information."""
    if trial.state in ("refused", "deleted", "failed", "no value"):
        return None
    indices = {f"{number}": _find_index(axis, trial.point[number]) for number, axis in enumerate(axes)}
    if None in indices.values():
        return None
    value, state = trial.value, TrialState.RUNNING
    if trial.state in DONE_STATUSES:
        state = TrialState.COMPLETE
    elif trial.state == "pruned":
        state = TrialState.PRUNED
    return optuna.trial.create_trial(
        state=state,
        value=value,
        params=indices,
        distributions=spaces,
        intermediate_values=_finite_values(trial),
    )


def _finite_values(trial: TrialRow) -> dict[int, float]:
    return {step: value for step, value in trial.reports.items() if math.isfinite(value)}


def _draw_untried(axes: Sequence[Axis], tried_keys: set[bytes], rng: random.Random) -> tuple[Any, ...] | None:
    """Return a random untried combination; if there are few combinations, choose among all untried ones."""
    combinations = math.prod(axis.count for axis in axes)  # 0 if one of the axes is a continuous range
    if 0 < combinations <= MAX_LISTED:
        values_by_axis = [[_value_at(axis, index) for index in range(axis.count)] for axis in axes]
        untried_points = [
            point for point in product(*values_by_axis) if value_key(list(point)) not in tried_keys
        ]
        return rng.choice(untried_points) if untried_points else None
    for _ in range(DRAWS):
        point = tuple(axis.draw(rng) for axis in axes)
        if value_key(list(point)) not in tried_keys:
            return point
    return None
