"""Tests of state that the loss carries from step to step, across an interruption."""

from typing import Any

import pytest
from sqlalchemy import select

from backend.config.merge import resolve
from backend.storage.models import Event
from tests.trained_runs import SMALL_CONFIG, series

TWO_DOMAINS = [{"name": "sums", "domain": "math"}, {"name": "sums", "operands": 2, "domain": "easy"}]
CONFIG_BY_TITLE: dict[str, dict[str, Any]] = {
    "dual KL to the old policy, by domain": {
        "problems": TWO_DOMAINS,
        "updates": {"epochs": 2},
        "objective": {
            "kl": {
                "type": "k3",
                "to": "old",
                "coef": {"math": 0.1, "easy": 0.2},
                "controller": {"type": "dual", "target": 1e-9},
            }
        },
    },
    "adaptive entropy": {"objective": {"entropy": {"type": "adaptive", "target": 5, "step": 0.01}}},
    "reference replaced every two steps": {
        "objective": {"kl": {"type": "k3"}, "reference": {"type": "every_n", "n": 2, "reset_optimizer": True}}
    },
    "reference replaced on stagnation": {
        "evaluation": {"every": 1, "prompts": 4},
        "objective": {"kl": {"type": "k2"}, "reference": {"type": "on_stagnation", "patience": 1}},
    },
    "reference drawn nearer": {
        "objective": {"kl": {"type": "k3"}, "reference": {"type": "ema", "alpha": 0.6, "n": 2}}
    },
    "horizon KL in the reward": {
        "objective": {
            "kl": {
                "type": "k1",
                "place": "reward",
                "controller": {"type": "horizon", "target": 1e-6, "horizon": 100},
            }
        },
    },
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", CONFIG_BY_TITLE)
def test_an_interrupted_run_continues_like_an_uninterrupted_one(train_interrupted, name):
    train_interrupted(resolve(SMALL_CONFIG | CONFIG_BY_TITLE[name]), stop_after=3)


def test_a_controller_moves_the_coefficient_that_is_recorded(sessions, queued, train):
    config = resolve(SMALL_CONFIG | CONFIG_BY_TITLE["dual KL to the old policy, by domain"])
    run_id = queued(config)
    train(run_id, config)
    recorded_series = series(sessions, run_id)
    shares = [coefficient / 2**step for step, coefficient in enumerate(recorded_series["kl/coef"].values())]
    assert all(0.1 <= share <= 0.2 for share in shares)  # doubled after each step
    assert {"kl/math", "kl/easy"} <= recorded_series.keys()


def test_after_a_replacement_the_distance_is_zero_and_an_event_reports_it(sessions, queued, train):
    config = resolve(SMALL_CONFIG | CONFIG_BY_TITLE["reference replaced every two steps"])
    run_id = queued(config)
    train(run_id, config)
    recorded_series = series(sessions, run_id)
    for name in ("kl/k1", "kl/k2", "kl/k3"):
        # step 1 begins at the reference, step 3 at the replaced one
        assert [recorded_series[name][step] for step in (1, 3)] == pytest.approx([0, 0], abs=1e-9)
        assert abs(recorded_series[name][2]) > 1e-9
    with sessions() as session:
        query = select(Event.step, Event.message).where(Event.run_id == run_id, Event.kind == "reference")
        events = [tuple(row) for row in session.execute(query.order_by(Event.step))]
    message = "reference replaced by the policy; the optimizer begins anew"
    assert events == [(2, message), (4, message)]


def test_a_fork_begins_with_the_reference_of_its_parent(sessions, queued, train):
    config = resolve(SMALL_CONFIG | CONFIG_BY_TITLE["reference replaced every two steps"])
    parent = queued(config)
    train(parent, config)
    fork = resolve(SMALL_CONFIG | {"steps": 5, "objective": {"kl": {"type": "k3"}}})
    child = queued(fork, parent=parent, step=4)
    train(child, fork)
    assert series(sessions, child)["kl/k3"][5] == pytest.approx(0, abs=1e-9)
