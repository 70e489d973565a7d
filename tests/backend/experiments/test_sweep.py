"""Tests of sweeps: how values are read, how cells are named, and what is refused before it is expanded."""

import tracemalloc

import pytest
from pydantic import ValidationError

from backend.base.errors import InvalidConfig
from backend.config.merge import resolve
from backend.experiments.sweep import Sweep, expand
from backend.experiments.sweep_values import parse_axis

GRPO_VARIANT = {"name": "grpo", "preset": "grpo"}


def cells(*knobs, variants=(GRPO_VARIANT,), base=None, seeds=1, **changes):
    sweep = Sweep.model_validate({"knobs": [{"path": path, "values": v} for path, v in knobs], **changes})
    return expand(base or {}, variants, sweep, seeds=seeds)


def find_error(*knobs, **changes):
    with pytest.raises(InvalidConfig) as error_info:
        cells(*knobs, **changes)
    [error] = error_info.value.errors
    return error.path, error.message


@pytest.mark.parametrize(
    ("text", "now", "values"),
    [
        ("1e-4, 3e-4, 1e-3", 1e-3, (1e-4, 3e-4, 1e-3)),
        ("1e-5..1e-3 log 5", 1e-3, (1e-5, 3.16228e-5, 1e-4, 3.16228e-4, 1e-3)),
        ("2..16 step 2", 8, (2, 4, 6, 8, 10, 12, 14, 16)),
        ("0.1..0.5 step 0.1", 0.0, (0.1, 0.2, 0.3, 0.4, 0.5)),
        ("0..1 lin 5", 0.0, (0.0, 0.25, 0.5, 0.75, 1.0)),
        ("0..1 lin 5", None, (0.0, 0.25, 0.5, 0.75, 1.0)),
        ("1..4", None, (1, 2, 3, 4)),
        ("8..64 log 4", 8, (8, 16, 32, 64)),
        ("1..4 log 9", 2, (1, 2, 3, 4)),  # whole numbers, each once
        ("2..5", 4, (2, 3, 4, 5)),
        ("4, 8..10", 4, (4, 8, 9, 10)),
        ("-1..1 lin 3", 0.0, (-1.0, 0.0, 1.0)),
        ("16, 64", "max_new_tokens", ("16", "64")),
        ("true, FALSE", False, (True, False)),
        ("mean, none, mean", "mean", ("mean", "none")),
        ("1, 1.0, 1e0", 0.5, (1.0,)),
        ("1000000..1000001 lin 5", 0.5, (1e6, 1000000.25, 1000000.5, 1000000.75, 1000001.0)),
        ([{"type": "none"}, 1, True, 1.0], None, ({"type": "none"}, 1, True)),
    ],
)
def test_sweep_values_are_read(text, now, values):
    listed_values = parse_axis(text, now).listed_values
    assert listed_values == values
    assert [type(axis_value) for axis_value in listed_values] == [type(axis_value) for axis_value in values]


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        (" , ,", "at least one value"),
        ("1..", "'1..' is not a range"),
        ("3..1 lin 5", "ends below its start"),
        ("0..1 log 5", "must start above 0 for log"),
        ("1..9 step", "needs a step above 0"),
        ("1..9 step -1", "needs a step above 0"),
        ("1..9 lin 1", "at least 2"),
        ("1..9 lin 2.5", "a whole number of values"),
        ("0..1 lin 1e90", "values, which are too many"),
        ("0..1e99 step 1e-99", "about 10^198 values"),
        ("0.1..0.9, 2", "must stand alone"),
        ("0..1 lin 900, 2", "has 900 values, at most 500 can be listed"),
        ("1e999", "too large"),
    ],
)
def test_invalid_values_are_refused_with_an_explanation(text, phrase):
    path, message = find_error(("optimizer.lr", text))
    assert path == "sweep.knobs.0.values"
    assert phrase in message


def test_cells_are_named_after_their_knob_values():
    swept_cells = cells(("optimizer.lr", "1e-4, 0.003"), ("objective.surrogate.eps_high", "0.2, 0.28"))
    assert [cell.variant["name"] for cell in swept_cells] == [
        "grpo lr=0.0001 eps_high=0.2",
        "grpo lr=0.0001 eps_high=0.28",
        "grpo lr=0.003 eps_high=0.2",
        "grpo lr=0.003 eps_high=0.28",
    ]
    assert swept_cells[0].variant_name == "grpo"
    assert swept_cells[3].values == (0.003, 0.28)


def test_a_swept_union_member_brings_its_own_fields():
    swept_cells = cells(("objective.kl.type", "none, k3"))
    kinds = [resolve({}, cell.variant).objective.kl.type for cell in swept_cells]
    assert kinds == ["none", "k3"]


def test_a_million_cells_are_refused_with_their_count_before_any_allocation():
    tracemalloc.start()
    path, message = find_error(
        ("optimizer.lr", "1e-6..1e-1 log 100"),
        ("objective.surrogate.eps_high", "0.1..0.9 lin 100"),
        ("objective.surrogate.eps_low", "0.1..0.9 lin 100"),
        seeds=5,
    )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert path == "sweep"
    assert message == "1,000,000 cells with 5 seeds each are 5,000,000 runs; one experiment may have 500"
    assert peak < 20_000_000


def test_a_random_sweep_of_ranges_stays_within_them_and_is_reproducible():
    knobs = ("optimizer.lr", "1e-5..1e-3 log"), ("sampling.group_size", "2..1000000")
    swept_cells = cells(*knobs, method="random", cells=200, seed=3)
    assert len({cell.values for cell in swept_cells}) == 200
    assert all(
        1e-5 <= lr <= 1e-3 and isinstance(size, int) and 2 <= size <= 10**6
        for lr, size in map(vals, swept_cells)
    )
    below_count = sum(lr < 1e-4 for lr, _ in map(vals, swept_cells))
    assert 70 <= below_count <= 130  # half of a log range is below its geometric mean
    assert cells(*knobs, method="random", cells=200, seed=3) == swept_cells
    assert cells(*knobs, method="random", cells=200, seed=4) != swept_cells


def vals(cell):
    return cell.values


def test_a_grid_of_a_continuous_range_and_too_many_random_cells_are_refused():
    assert "a grid needs a number of values" in find_error(("optimizer.lr", "1e-5..1e-3 log"))[1]
    assert "only 2 combinations" in find_error(("optimizer.lr", "1, 2"), method="random", cells=3)[1]
    narrow_error = find_error(("sampling.group_size", "2..4 log"), method="random", cells=9)
    assert narrow_error == ("sweep.cells", "only 3 different combinations were found; ask for fewer cells")


@pytest.mark.parametrize(
    ("variants", "knobs", "phrase"),
    [
        ([{"name": "n" * 199}], [("optimizer.lr", "1")], "give the variant a shorter one"),
        ([GRPO_VARIANT], [("policy.dtype", ["1", 1])], "two cells would have the name 'grpo dtype=1'"),
        ([GRPO_VARIANT], [("rewards.7.weight", "1")], "there is no item 7 in a list of 1"),
    ],
)
def test_an_invalid_variant_is_refused(variants, knobs, phrase):
    assert phrase in find_error(*knobs, variants=variants)[1]


@pytest.mark.parametrize("path", ["seed", "name", "", "a..b", "a b", "__class__.x-y", "a." * 120 + "a"])
def test_paths_that_are_not_knobs_are_refused(path):
    with pytest.raises(ValidationError):
        Sweep.model_validate({"knobs": [{"path": path, "values": "1"}]})
