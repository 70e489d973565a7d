"""Forks: a new run that goes on from another run's checkpoint, on the tiny policy."""

from typing import Any

import pytest
from sqlalchemy import select

from backend.base.errors import Conflict
from backend.config.merge import merge, resolve
from backend.config.metrics import OF_THE_MACHINE
from backend.metrics.history import valid_steps
from backend.storage.models import Event, Run
from tests.gate import first_in_gate
from tests.worker.training.test_trainer import SMALL, queued, series, sessions, train
from worker.checkpoints.files import BadCheckpoint
from worker.checkpoints.store import Checkpoints
from worker.outcome import Outcome
from worker.recording.recorder import Recorder

__all__ = ["queued", "sessions", "train"]

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
        "sampling": {**SMALL["sampling"], "staleness": 1},
        "filters": {"groups": {"type": "zero_variance"}, "refill": {"type": "active", "max_batches": 3}},
    },
}


def restored(sessions, run_id):
    """What the run's newest event about a checkpoint says was restored."""
    query = select(Event).where(Event.run_id == run_id, Event.kind == "checkpoint", Event.level == "info")
    with sessions() as session:
        event = session.scalars(query.order_by(Event.id.desc())).first()
        return event.message, event.data["restored"]


@pytest.mark.parametrize("name", first_in_gate(1, CONFIGS))
def test_a_fork_without_changes_does_what_its_parent_did(sessions, queued, train, settings, name):
    config = resolve(SMALL | CONFIGS[name])
    parent = queued(config)
    train(parent, config)
    fork = queued(config, parent=parent, step=2)
    assert train(fork, config) == Outcome("finished")
    expected = {
        metric: {step: value for step, value in values.items() if step > 2}
        for metric, values in series(sessions, parent).items()
    }
    assert series(sessions, fork) == {metric: values for metric, values in expected.items() if values}
    ours, theirs = (settings.artifacts_of(run_id) / "s000004-a1" for run_id in (fork, parent))
    for file in sorted(theirs.rglob("*.safetensors")):
        assert (ours / file.relative_to(theirs)).read_bytes() == file.read_bytes(), file.name


@pytest.mark.nightly
def test_a_fork_says_what_it_took_over_and_what_begins_anew(sessions, queued, train):
    before = resolve(SMALL)
    parent = queued(before)
    train(parent, before)
    changed = {"seed": 7, "steps": 5, "objective": {"entropy": {"type": "adaptive", "target": 5}}}
    after = resolve(merge(SMALL, changed))
    fork = queued(after, parent=parent, step=4)
    train(fork, after)
    message, origin = restored(sessions, fork)
    assert message == "forked from step 4 of r; entropy, random begin anew"
    assert (origin["run"], origin["checkpoint"], origin["step"]) == (parent, "s000004-a1", 4)
    assert origin["parts"] == ["policy", "baseline", "history", "optimizer", "pool", "progress"]
    assert (origin["fresh"], origin["refused"], origin["versions"]) == (["entropy", "random"], [], {})
    assert sorted(series(sessions, fork)["reward/mean"]) == [5]


@pytest.mark.nightly
def test_a_fork_with_another_seed_samples_anew_from_the_same_weights(sessions, queued, train):
    config = resolve(SMALL)
    parent = queued(config)
    train(parent, config)
    series_by_seed = {}
    for seed in (config.seed, 7, 8, 7):
        changed = config.with_(seed=seed)
        fork = queued(changed, parent=parent, step=2)
        train(fork, changed)
        series_by_seed.setdefault(seed, []).append(series(sessions, fork))
    assert series_by_seed[7][0] == series_by_seed[7][1]
    lengths = [forks[0]["length/mean"] for forks in series_by_seed.values()]
    assert all(sorted(by_step) == [3, 4] for by_step in lengths)
    assert len({tuple(by_step.values()) for by_step in lengths}) == 3


@pytest.mark.nightly
def test_a_fork_remembers_the_history_that_it_inherited(sessions, queued, train):
    config = resolve(SMALL)
    parent = queued(config)
    train(parent, config)
    longer = config.with_(steps=5)
    fork = queued(longer, parent=parent, step=4)
    train(fork, longer)
    with sessions() as session:
        steps = dict(valid_steps(session, fork, up_to=9))
        theirs = dict(valid_steps(session, parent, up_to=4))
        run = session.get_one(Run, fork)
    assert sorted(steps) == [0, 1, 2, 3, 4, 5]
    assert {step: steps[step] for step in theirs} == theirs
    best = max(theirs, key=lambda step: theirs[step].get("eval/accuracy", -1))
    assert run.summary["best"]["eval/accuracy"]["value"] >= theirs[best]["eval/accuracy"]
    clocks = [steps[step]["time/wall_seconds"] for step in sorted(steps)]
    assert clocks == sorted(clocks)


@pytest.mark.nightly
def test_a_fork_that_is_interrupted_goes_on_from_its_own_checkpoint(sessions, queued, train, settings):
    config = resolve(SMALL | {"steps": 6})
    parent = queued(config)
    train(parent, config)
    fork = queued(config, parent=parent, step=4)
    assert train(fork, config, stop_after=5).status == "queued"
    assert train(fork, config) == Outcome("finished")
    message, origin = restored(sessions, fork)
    assert (message, origin["checkpoint"]) == ("continued from step 5", "s000005-a1")
    mine, theirs = series(sessions, fork), series(sessions, parent)
    assert mine["reward/mean"] == {step: theirs["reward/mean"][step] for step in (5, 6)}
    assert {name for name in mine if not name.startswith(OF_THE_MACHINE)} <= theirs.keys()
    for directory in settings.artifacts_of(fork).iterdir():
        (directory / "model.safetensors").write_bytes(b"damaged")
    longer = config.with_(steps=7)
    with sessions.begin() as session:
        run = session.get_one(Run, fork)
        run.status, run.config = "queued", longer.model_dump(mode="json")
    train(fork, longer)
    message, origin = restored(sessions, fork)
    assert message.startswith("forked from step 4")
    assert [refused["checkpoint"] for refused in origin["refused"]] == ["s000006-a2", "s000005-a1"]


def test_a_damaged_or_lost_origin_ends_the_fork_with_a_reason(sessions, queued, train, settings):
    config = resolve(SMALL | {"steps": 2})
    parent = queued(config)
    train(parent, config)
    manifest = settings.artifacts_of(parent) / "s000002-a1" / "manifest.json"
    manifest.write_text(manifest.read_text() + " ")
    longer = config.with_(steps=3)
    fork = queued(longer, parent=parent, step=2)
    with pytest.raises(BadCheckpoint, match="is not the one that was written"):
        train(fork, longer)
    orphan = queued(longer, step=2)
    with sessions.begin() as session:
        session.get_one(Run, fork).status = "failed"
    with pytest.raises(Conflict, match="the run whose checkpoint of step 2 it begins with was deleted"):
        train(orphan, longer)


def test_a_fenced_attempt_that_wakes_up_removes_nothing_of_its_successor(
    sessions, queued, train, settings, monkeypatch
):
    """It sleeps between the transaction that forgets old checkpoints and the removal of their files."""
    config = resolve(SMALL)
    run_id = queued(config)
    train(run_id, config)
    root = settings.artifacts_of(run_id)
    successor, draft = root / "s000009-a2", root / ".s000010-a2.7.draft"
    recorder = Recorder(sessions, run_id, 1, config=config)
    monkeypatch.setattr(recorder, "commit", lambda _: (successor.mkdir(), draft.mkdir()))
    sleeper = Checkpoints(root, recorder, run_id=run_id, attempt=1, config=config)
    sleeper._prune()
    assert sorted(path.name for path in root.iterdir()) == [draft.name, successor.name]
