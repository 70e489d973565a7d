"""Optuna's part of a search: which configuration comes next, and which run falls behind.

The study is built from the rows in memory. Importing this module takes a third of a second.
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
from backend.experiments.searches.trial import DONE, LIVE, TrialRow
from backend.experiments.sweep_values import Axis, value_key

optuna.logging.set_verbosity(optuna.logging.ERROR)

TRIES = 30
"""Proposals of the sampler that may be known already before one is drawn at random."""
DRAWS = 2000
MAX_LISTED = 10_000
STARTUP = 10
"""Configurations that are drawn at random before TPE follows the results; Optuna's default."""
REDUCTION = 3
"""Reduction factor of successive halving: a third of the runs continue at each rung."""
MIN_FINISHED = 3
"""Finished runs before the median is asked."""


def next_point(
    trials: Sequence[TrialRow], axes: Sequence[Axis], settings: SearchSettings, seed: int
) -> tuple[Any, ...] | None:
    """Return the values of the knobs to try next, a function of the rows and the seed; None: all were
    tried.
    """
    spaces = {f"{index}": _distribution(axis) for index, axis in enumerate(axes)}
    tried = {value_key(list(trial.point)) for trial in trials}
    study = _study(_sampler(settings, _mix_seed(seed, len(trials))), settings)
    for trial in trials:
        if (frozen := _freeze_trial(trial, axes, spaces)) is not None:
            study.add_trial(frozen)
    for _ in range(TRIES):
        asked = study.ask(fixed_distributions=spaces)
        point = tuple(_value_at(axis, asked.params[f"{index}"]) for index, axis in enumerate(axes))
        if value_key(list(point)) not in tried:
            return point
    return _draw_untried(axes, tried, random.Random(_mix_seed(seed, len(trials))))


def find_prunable(trials: Sequence[TrialRow], settings: SearchSettings, steps: int) -> dict[int, bool]:
    """Live trials with values that the pruner has not seen, and whether it would stop them now.

    Values that it has seen come first, then the new ones in the order of their steps.
    """
    study = _study(optuna.samplers.RandomSampler(seed=0), settings, _pruner(settings, steps))
    running: dict[int, optuna.Trial] = {}
    prune_by_number: dict[int, bool] = {}
    reported = [trial for trial in trials if trial.reports and trial.state != "deleted"]
    for trial in sorted(reported, key=lambda row: row.state in LIVE):  # the ended ones first
        study.enqueue_trial({})
        asked = study.ask()
        is_live = trial.state in LIVE
        for step, value in _finite_values(trial).items():
            if not is_live or step <= trial.judged_step:
                asked.report(value, step)
                asked.should_prune()  # notes the rungs that it has reached
        if is_live:
            running[trial.number] = asked
        elif trial.state in DONE:
            study.tell(asked, final_value(trial.reports))
        else:
            study.tell(asked, state=TrialState.PRUNED if trial.state == "pruned" else TrialState.FAIL)
    new = [
        (step, trial.number, value)
        for trial in reported
        if trial.number in running
        for step, value in _finite_values(trial).items()
        if step > trial.judged_step
    ]
    for step, number, value in sorted(new):
        running[number].report(value, step)
        prune_by_number[number] = running[number].should_prune() or prune_by_number.get(number, False)
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
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=STARTUP, constant_liar=True)


def _pruner(settings: SearchSettings, steps: int) -> optuna.pruners.BasePruner:
    first = max(1, round(settings.first_rung * steps))
    match settings.pruner:
        case "median":
            return optuna.pruners.MedianPruner(n_startup_trials=MIN_FINISHED, n_warmup_steps=first)
        case "halving":
            return optuna.pruners.SuccessiveHalvingPruner(min_resource=first, reduction_factor=REDUCTION)
    return optuna.pruners.NopPruner()


def _mix_seed(seed: int, number: int) -> int:
    """Return a seed of a decision, from that of the search and the number of trials before it."""
    return random.Random(f"{seed}/{number}").getrandbits(31)


def _distribution(axis: Axis) -> BaseDistribution:
    """Numbers keep their order; words have none."""
    if axis.range is None:
        places = range(len(axis.listed))
        if len(axis.listed) > 1 and all(_is_number(value) for value in axis.listed):
            return IntDistribution(0, len(axis.listed) - 1)
        return CategoricalDistribution(tuple(places))
    if axis.range.count:
        return IntDistribution(0, axis.range.count - 1)
    return FloatDistribution(0.0, 1.0)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _sorted_values(axis: Axis) -> list[Any]:
    """Listed values, numbers by their size."""
    is_numeric = all(_is_number(value) for value in axis.listed)
    return sorted(axis.listed) if is_numeric else list(axis.listed)


def _value_at(axis: Axis, index: Any) -> Any:
    """Return the value of a knob at a place that Optuna has chosen."""
    if axis.range is None:
        return _sorted_values(axis)[index]
    return axis.range.at(index) if axis.range.count else axis.range.value(index)


def _index_of(axis: Axis, value: Any) -> Any:
    """Return the place of a value; None if it is none of the knob."""
    if axis.range is not None:
        return axis.range.place(value)
    key = value_key(value)
    return next(
        (index for index, listed_value in enumerate(_sorted_values(axis)) if value_key(listed_value) == key),
        None,
    )


def _freeze_trial(
    trial: TrialRow, axes: Sequence[Axis], spaces: dict[str, BaseDistribution]
) -> optuna.trial.FrozenTrial | None:
    """Return the trial for the sampler; None for one that says nothing."""
    if trial.state in ("refused", "deleted", "failed", "no value"):
        return None
    places = {f"{number}": _index_of(axis, trial.point[number]) for number, axis in enumerate(axes)}
    if None in places.values():
        return None
    value, state = trial.value, TrialState.RUNNING
    if trial.state in DONE:
        state = TrialState.COMPLETE
    elif trial.state == "pruned":
        state = TrialState.PRUNED
    return optuna.trial.create_trial(
        state=state,
        value=value,
        params=places,
        distributions=spaces,
        intermediate_values=_finite_values(trial),
    )


def _finite_values(trial: TrialRow) -> dict[int, float]:
    return {step: value for step, value in trial.reports.items() if math.isfinite(value)}


def _draw_untried(axes: Sequence[Axis], tried: set[bytes], rng: random.Random) -> tuple[Any, ...] | None:
    """Return a random combination that was not tried; if there are few, all are enumerated."""
    combinations = math.prod(axis.count for axis in axes)  # 0: a continuous range is among them
    if 0 < combinations <= MAX_LISTED:
        listed = [[_value_at(axis, index) for index in range(axis.count)] for axis in axes]
        free = [point for point in product(*listed) if value_key(list(point)) not in tried]
        return rng.choice(free) if free else None
    for _ in range(DRAWS):
        point = tuple(axis.draw(rng) for axis in axes)
        if value_key(list(point)) not in tried:
            return point
    return None
