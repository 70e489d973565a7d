"""Properties of sweeps over random knob values: distinct cells of the counted number in a stable order."""

import json
from math import prod

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backend.config.merge import resolve
from backend.experiments.sweep import Sweep, expand, value_at
from backend.experiments.sweep_values import parse_axis

VALUES_BY_KNOB = {
    "optimizer.lr": st.floats(1e-6, 0.1, allow_subnormal=False),
    "sampling.group_size": st.integers(2, 64),
    "objective.surrogate.eps_high": st.floats(0.1, 0.9),
    "rewards.0.weight": st.floats(0.5, 4),
}
GRPO_VARIANT = {"name": "grpo", "preset": "grpo"}

axes = st.fixed_dictionaries(
    {}, optional={path: st.lists(values, min_size=1, max_size=4) for path, values in VALUES_BY_KNOB.items()}
).filter(bool)


def make_sweep(values, **changes):
    return Sweep.model_validate(
        {"knobs": [{"path": path, "values": knob_values} for path, knob_values in values.items()], **changes}
    )


def expand_cells(values, variants=(GRPO_VARIANT,), **changes):
    return expand({}, variants, make_sweep(values, **changes), seeds=1)


@given(axes)
def test_a_grid_has_every_combination_once_in_the_order_of_the_values(values):
    cells = expand_cells(values)
    distinct = {path: list(dict.fromkeys(axis_values)) for path, axis_values in values.items()}
    assert len(cells) == prod(len(axis_values) for axis_values in distinct.values())
    assert len({cell.values for cell in cells}) == len({cell.variant["name"] for cell in cells}) == len(cells)
    value_positions = [
        [distinct[path].index(axis_value) for path, axis_value in zip(values, cell.values, strict=True)]
        for cell in cells
    ]
    assert value_positions == sorted(value_positions)


@given(axes)
def test_a_cell_is_a_variant_whose_config_differs_only_in_the_knobs(values):
    cell = expand_cells(values)[-1]
    swept_config, plain_config = (
        resolve({}, variant).model_dump(mode="json") for variant in (cell.variant, GRPO_VARIANT)
    )
    for path, axis_value in zip(values, cell.values, strict=True):
        assert value_at(swept_config, path) == axis_value
        *parents, last = path.split(".")
        value_at(swept_config, ".".join(parents))[last] = value_at(plain_config, path)
    assert swept_config == plain_config


@given(axes, st.integers(0, 2**31 - 1), st.data())
def test_a_random_sweep_draws_distinct_cells_and_a_larger_one_extends_a_smaller_one(values, seed, data):
    grid = {cell.values for cell in expand_cells(values)}
    cell_count = data.draw(st.integers(1, len(grid)))
    smaller_count = data.draw(st.integers(1, cell_count))
    drawn_cells = [cell.values for cell in expand_cells(values, method="random", cells=cell_count, seed=seed)]
    assert len(set(drawn_cells)) == len(drawn_cells) == cell_count
    assert set(drawn_cells) <= grid
    smaller_sweep = [
        cell.values for cell in expand_cells(values, method="random", cells=smaller_count, seed=seed)
    ]
    assert smaller_sweep == drawn_cells[:smaller_count]


numbers = st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**6), 10**6)).map(repr)
endings = st.sampled_from(
    ["", " log", " log 5", " lin 3", " lin 400", " step 2", " step 0", " lin 1.5", " log -1"]
)


@example("0..1E20 lin 3")
@example("1e19..1e30 log 400")
@given(
    st.one_of(
        st.text(max_size=40), st.tuples(numbers, numbers, endings).map(lambda p: f"{p[0]}..{p[1]}{p[2]}")
    )
)
@pytest.mark.parametrize("now", [1, 0.5, "text", None, True])
def test_any_text_is_a_list_of_distinct_finite_values_or_is_refused(now, text):
    try:
        axis = parse_axis(text, now)
    except ValueError:
        return
    assert json.loads(json.dumps(axis.listed_values, allow_nan=False)) == list(axis.listed_values)
    assert axis.range is not None or axis.count >= 1
