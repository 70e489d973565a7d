"""Tests of the estimated disk space of a run's checkpoints, which depends on retention and model size."""

import pytest

from backend.base.settings import Settings
from backend.config.merge import resolve
from backend.experiments.checkpoint_sizes import PARAMETERS_BY_MODEL, checkpoint_bytes, max_checkpoints
from backend.storage.engine import open_read_session
from backend.storage.models import Checkpoint
from tests.gate import first_in_gate
from tests.trained_runs import SMALL_CONFIG
from worker.policy.model import load_policy


@pytest.mark.parametrize("policy", PARAMETERS_BY_MODEL)
def test_parameter_counts_of_the_built_in_policies(policy):
    model = load_policy(resolve({"policy": {"name": policy}}, None, 0).policy, Settings()).model
    assert sum(weights.numel() for weights in model.parameters()) == PARAMETERS_BY_MODEL[policy]


@pytest.mark.parametrize(
    "changes",
    first_in_gate(
        1,
        [
            {},
            {"preset": "ppo"},
            {"sampling": SMALL_CONFIG["sampling"] | {"staleness": 2}},
            {"policy": {"name": "tiny", "dtype": "bfloat16"}},
        ],
    ),
)
def test_the_estimate_is_close_and_then_exact_once_a_checkpoint_exists(
    sessions, settings, queued, train, changes
):
    config = resolve(SMALL_CONFIG | changes, None, 0)
    with open_read_session(sessions) as session:
        estimated_bytes = checkpoint_bytes(session, config, settings)
    train(queued(config), config)
    with open_read_session(sessions) as session:
        actual_bytes = session.query(Checkpoint).order_by(Checkpoint.step.desc()).first().bytes_total
        assert estimated_bytes == pytest.approx(actual_bytes, rel=0.15)
        assert checkpoint_bytes(session, config, settings) == pytest.approx(actual_bytes, rel=0.01)


@pytest.mark.parametrize(
    ("steps", "rule", "count"),
    [
        (150, {"every": 25}, 6),
        (1000, {"every": 25}, 9),
        (1000, {"every": 25, "keep": 2, "spaced": 0}, 4),
        (1000, {"every": 0}, 1),
        (0, {"every": 25}, 0),
    ],
)
def test_the_count_is_that_of_retention_plus_the_one_being_written(steps, rule, count):
    assert max_checkpoints(resolve({"steps": steps, "checkpointing": rule}, None, 0)) == count
