"""Tests of the Optuna part of a search: positions of values, new proposals, and decisions from rows alone."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.experiments.search_settings import SearchSettings
from backend.experiments.searches.study import find_prunable, next_point
from backend.experiments.searches.trial import RunRow, TrialRow
from backend.experiments.sweep_values import parse_axis

INTEGER_RANGES = ("2..64", "2..64 log", "1, 3, 2", "2..4096 step 2", "5..5")
RANGES = ["1e-5..1e-2 log", "0..1", "2..64", "2..64 log", "1, 3, 2", "0..1 lin 700", "2..4096 step 2", "5..5"]


def trial(number, point, value=None, status="finished", steps=40, **fields):
    reports = {} if value is None else {step: value * step / steps for step in (10, 20, 30, 40)}
    run = RunRow(f"r{number}", "n", f"v{number}", 0, status, steps, reports=fields.pop("reports", reports))
    return TrialRow(number, tuple(point), f"v{number}", run, **fields)


@given(st.sampled_from(RANGES), st.floats(0, 1))
def test_the_position_of_a_value_maps_back_to_it(text, share):
    axis = parse_axis(text, 3 if text in INTEGER_RANGES else 0.5)
    if axis.range is None:
        return
    given_range = axis.range
    count = given_range.count
    axis_value = given_range.value_at(int(share * (count - 1))) if count else given_range.value(share)
    position = given_range.find_position(axis_value)
    assert position is not None
    assert (given_range.value_at(int(position)) if count else given_range.value(position)) == pytest.approx(
        axis_value
    )
    assert (
        given_range.find_position(1e9)
        is given_range.find_position("x")
        is given_range.find_position(True)
        is None
    )


@pytest.mark.parametrize("sampler", ["tpe", "random"])
@pytest.mark.parametrize("text", RANGES)
def test_proposals_are_new_values_of_the_axis_until_it_is_exhausted(sampler, text):
    axis = parse_axis(text, 3 if text in INTEGER_RANGES else 0.5)
    search_settings = SearchSettings.model_validate({"sampler": sampler})
    trials = []
    for number in range(14):
        point = next_point(trials, [axis], search_settings, 7)
        if point is None:
            assert number == axis.count
            return
        assert point not in [row.point for row in trials]
        trials.append(trial(number, point, random.Random(number).random()))
    assert axis.count == 0 or axis.count > 13


@given(st.lists(st.floats(0, 1) | st.none(), max_size=14), st.integers(0, 2**31 - 1))
def test_a_proposal_depends_only_on_the_rows_and_the_seed(values, seed):
    axis = parse_axis("1e-5..1e-2 log", 1e-3)
    trials = [
        trial(number, [1e-5 * (number + 1)], objective, "failed" if objective is None else "finished")
        for number, objective in enumerate(values)
    ]
    assert next_point(trials, [axis], SearchSettings(), seed) == next_point(
        trials, [axis], SearchSettings(), seed
    )


def test_tpe_comes_closer_to_the_best_than_random_search():
    def distance(sampler, seed):
        axis, trials = parse_axis("1e-6..1 log", 1e-3), []
        search_settings = SearchSettings.model_validate({"sampler": sampler})
        for number in range(25):
            point = next_point(trials, [axis], search_settings, seed)
            assert point is not None
            trials.append(trial(number, point, 1 - abs(math.log10(point[0]) + 3) / 3))
        return sum(abs(math.log10(row.point[0]) + 3) for row in trials[10:])

    assert sum(distance("tpe", seed) for seed in range(4)) < sum(
        distance("random", seed) for seed in range(4)
    )


def test_a_minimised_objective_is_pruned_in_the_opposite_direction():
    finished = [trial(number, [number], value) for number, value in enumerate((0.2, 0.4, 0.6))]
    running_trial = trial(3, [3], status="running", reports={10: 0.9})
    for direction, is_behind in (("maximize", False), ("minimize", True)):
        search_settings = SearchSettings.model_validate({"direction": direction, "first_rung": 0.25})
        assert find_prunable([*finished, running_trial], search_settings, 40) == {3: is_behind}


@pytest.mark.parametrize(("step", "is_pruned"), [(9, False), (10, True)])
def test_no_trial_is_pruned_before_the_first_rung(step, is_pruned):
    finished = [
        trial(number, [number], steps=20, reports={9: objective, 10: objective, 20: objective})
        for number, objective in enumerate((0.2, 0.4, 0.6))
    ]
    running_trial = trial(3, [3], status="running", steps=20, reports={step: 0.0})
    search_settings = SearchSettings.model_validate({"pruner": "median", "first_rung": 0.5})
    assert find_prunable([*finished, running_trial], search_settings, 20) == {3: is_pruned}
