"""Tests that damaged checkpoints are refused by their hashes, and the newest complete one continues."""

import os
import random
import shutil
import threading

import pytest
from sqlalchemy import func, select

from backend.config.merge import resolve
from backend.runs import lifecycle
from backend.storage.models import Event
from tests.faults.chaos import DAMAGE_KINDS, damage
from tests.trained_runs import SMALL_CONFIG
from worker.checkpoints.files import BadCheckpoint
from worker.checkpoints.store import Checkpoints
from worker.recording.recorder import Recorder
from worker.training.trainer import Trainer

DAMAGE_COUNT = int(os.environ.get("GRPOLAB_DAMAGES", "20"))
"""Number of checkpoints that are damaged; 200 take a minute."""


@pytest.fixture
def trained(sessions, settings, queued, train):
    """A run with three checkpoints, and the process that would continue it."""
    config = resolve(
        SMALL_CONFIG | {"steps": 6, "checkpointing": {"every": 1, "keep": 3}, "evaluation": {"every": 0}}
    )
    run_id = queued(config)
    train(run_id, config, stop_after=3)
    with sessions.begin() as session:
        claim = lifecycle.claim_run(session, "worker", "host")
    with Recorder(sessions, run_id, claim.attempt, config=config) as recorder:

        def continuing(root):
            owner = {"run_id": run_id, "attempt": claim.attempt, "config": config}
            checkpoints = Checkpoints(root, recorder, **owner)
            return Trainer(
                config,
                recorder,
                settings=settings,
                checkpoints=checkpoints,
                device="cpu",
                stopping=threading.Event(),
            )

        yield settings.artifact_dir(run_id), continuing, recorder


def restored(trainer):
    """Return the step that the trainer continues from (or 0), and a sum of its whole state."""
    try:
        step = trainer.checkpoints.restore(trainer.policy, trainer.parts)
    except BadCheckpoint as error:
        return 0, error.detail.rpartition(": ")[2]
    weights = [parameter.detach() for parameter in trainer.policy.model.parameters()]
    moments = [moment for component in trainer.parts.values() for moment in component.tensors().values()]
    return step, float(sum(moment.double().sum() for moment in [*weights, *moments]))


def count_refusals(sessions):
    query = select(func.count()).where(Event.message.startswith("refused: "), Event.level == "error")
    with sessions() as session:
        return session.scalar(query)


def test_a_damaged_checkpoint_never_continues_a_run(trained, sessions, tmp_path):
    undamaged_directory, continuing, recorder = trained
    names = sorted((path.name for path in undamaged_directory.iterdir()), reverse=True)
    assert names == ["s000003-a1", "s000002-a1", "s000001-a1"]
    value_by_step = {0: "none of the run's 3 checkpoints is complete"}
    for step in (3, 2, 1):
        root = shutil.copytree(undamaged_directory, tmp_path / f"good{step}")
        for name in names[: 3 - step]:
            shutil.rmtree(root / name)
        value_by_step[step] = restored(continuing(root))[1]
    recorder.flush()
    refusals_before, damage_count = count_refusals(sessions), 0
    rng = random.Random(0)
    while damage_count < DAMAGE_COUNT:
        root = shutil.copytree(undamaged_directory, tmp_path / "damaged")
        damaged_count = rng.choice((1, 1, 2, 3))
        for name in names[:damaged_count]:
            donor = rng.choice(
                [donor for donor in names if donor != name and (root / donor).is_dir()] or [""]
            )
            damage_kinds = (
                DAMAGE_KINDS
                if donor
                else [damage_kind for damage_kind in DAMAGE_KINDS if damage_kind != "swap"]
            )
            damage(root / name, rng.choice(damage_kinds), undamaged_directory / donor, rng)
        step, state = restored(continuing(root))
        assert step == 3 - damaged_count
        assert state == value_by_step[step]
        shutil.rmtree(root)
        damage_count += damaged_count
        recorder.flush()
        assert count_refusals(sessions) == refusals_before + damage_count
