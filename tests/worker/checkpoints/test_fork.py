"""Tests of forks, which continue from another run's checkpoint, on the tiny policy."""

from typing import Any

import pytest

from backend.base.errors import Conflict
from backend.config.merge import resolve
from backend.metrics.history import valid_steps
from backend.storage.models import Run
from tests.gate import first_in_gate
from tests.trained_runs import SMALL_CONFIG, series
from worker.checkpoints.files import BadCheckpoint
from worker.checkpoints.store import Checkpoints
from worker.outcome import Outcome
from worker.recording.recorder import Recorder

CONFIGS: dict[str, dict[str, Any]] = {
    "the plain one": {},
    "a critic": {"preset": "ppo"},
    "controllers and a reference": {
        "objective": {
            "kl": {"type": "k3", "controller": {"type": "dual", "target": 1e-9}},
            "entropy": {"type": "adaptive", "target": 5, "step": 0.01},
            "reference": {"type": "every_n", "n": 1},
        }
    },
    "groups and weights that wait": {
        "sampling": {**SMALL_CONFIG["sampling"], "staleness": 1},
        "filters": {"groups": {"type": "zero_variance"}, "refill": {"type": "active", "max_batches": 3}},
    },
}


@pytest.mark.parametrize("name", first_in_gate(1, CONFIGS))
def test_a_fork_without_changes_trains_like_its_parent(sessions, queued, train, settings, name):
    config = resolve(SMALL_CONFIG | CONFIGS[name])
    parent = queued(config)
    train(parent, config)
    fork = queued(config, parent=parent, step=2)
    assert train(fork, config) == Outcome("finished")
    expected = {
        metric: {step: metric_value for step, metric_value in values.items() if step > 2}
        for metric, values in series(sessions, parent).items()
    }
    assert series(sessions, fork) == {metric: values for metric, values in expected.items() if values}
    fork_directory, parent_directory = (
        settings.artifact_dir(run_id) / "s000004-a1" for run_id in (fork, parent)
    )
    for file in sorted(parent_directory.rglob("*.safetensors")):
        assert (fork_directory / file.relative_to(parent_directory)).read_bytes() == file.read_bytes(), (
            file.name
        )


@pytest.mark.nightly
def test_a_fork_keeps_the_history_that_it_inherited(sessions, queued, train):
    config = resolve(SMALL_CONFIG)
    parent = queued(config)
    train(parent, config)
    longer_config = config.with_(steps=5)
    fork = queued(longer_config, parent=parent, step=4)
    train(fork, longer_config)
    with sessions() as session:
        steps = dict(valid_steps(session, fork, up_to=9))
        parent_steps = dict(valid_steps(session, parent, up_to=4))
        run = session.get_one(Run, fork)
    assert sorted(steps) == [0, 1, 2, 3, 4, 5]
    assert {step: steps[step] for step in parent_steps} == parent_steps
    best = max(parent_steps, key=lambda step: parent_steps[step].get("eval/accuracy", -1))
    assert run.summary["best"]["eval/accuracy"]["value"] >= parent_steps[best]["eval/accuracy"]
    clocks = [steps[step]["time/wall_seconds"] for step in sorted(steps)]
    assert clocks == sorted(clocks)


def test_a_damaged_or_missing_origin_ends_the_fork_with_a_reason(sessions, queued, train, settings):
    config = resolve(SMALL_CONFIG | {"steps": 2})
    parent = queued(config)
    train(parent, config)
    manifest = settings.artifact_dir(parent) / "s000002-a1" / "manifest.json"
    manifest.write_text(manifest.read_text() + " ")
    longer_config = config.with_(steps=3)
    fork = queued(longer_config, parent=parent, step=2)
    with pytest.raises(BadCheckpoint, match="is not the one that was written"):
        train(fork, longer_config)
    orphan = queued(longer_config, step=2)
    with sessions.begin() as session:
        session.get_one(Run, fork).status = "failed"
    with pytest.raises(Conflict, match="the run whose checkpoint of step 2 it begins with was deleted"):
        train(orphan, longer_config)


def test_a_fenced_attempt_that_wakes_up_removes_nothing_of_its_successor(
    sessions, queued, train, settings, monkeypatch
):
    """The attempt sleeps after the transaction that forgets old checkpoints, before it removes the files."""
    config = resolve(SMALL_CONFIG)
    run_id = queued(config)
    train(run_id, config)
    root = settings.artifact_dir(run_id)
    successor, draft = root / "s000009-a2", root / ".s000010-a2.7.draft"
    recorder = Recorder(sessions, run_id, 1, config=config)
    monkeypatch.setattr(recorder, "commit", lambda _: (successor.mkdir(), draft.mkdir()))
    sleeper = Checkpoints(root, recorder, run_id=run_id, attempt=1, config=config)
    sleeper._prune()
    assert sorted(path.name for path in root.iterdir()) == [draft.name, successor.name]
