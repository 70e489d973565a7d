"""Tests of faults during real training: every run ends, and every committed value is bit-equal.

This is the short form of rows 1, 3, 5, 6, 8 and 12 of the fault plan, with each fault at least once on
each database. `make faults` is the long form."""

import random
import signal

import pytest
from sqlalchemy import select

from backend.storage.engine import open_read_session
from backend.storage.models import Event
from tests.faults.audit import audit
from tests.faults.campaign import configs, play
from tests.faults.chaos import DAMAGE_KINDS, Chaos, damage, plan
from tests.faults.plant import FaultyInstallation, Kind
from tests.faults.processes import send
from tests.waiting import wait_for

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]


@pytest.mark.parametrize(
    ("database", "broker"),
    [("sqlite", "valkey"), pytest.param("postgres", "filesystem", marks=pytest.mark.nightly)],
)
def test_runs_end_bit_equal_whatever_is_killed_frozen_or_damaged(warm, database, broker):
    kind = Kind(database, broker)
    faults = [*dict.fromkeys(plan(kind, 0, 1000)), "trainer_killed", "trainer_killed", "worker_killed"]
    random.shuffle(faults)
    with FaultyInstallation(kind, warm) as installation:
        played_round = play(installation, faults, seed=random.randrange(10**9), runs=3)
    assert played_round.verdict.sentences == []
    assert played_round.is_clean, played_round.line()
    assert set(faults) <= set(played_round.faults)


def test_a_run_whose_checkpoints_are_all_damaged_fails_with_a_message(warm):
    with FaultyInstallation(Kind("sqlite", "filesystem"), warm, workers=1) as installation:
        chaos = Chaos(installation, seed=0)
        (run_id,) = installation.queue(configs(1, steps=200))
        wait_for(lambda: len(chaos.rows(run_id)) == 3, "three checkpoints")
        (trainer,) = wait_for(installation.trainers, "a trainer")
        send(trainer.pid, signal.SIGSTOP)
        rows = chaos.rows(run_id)
        for row, damage_kind in zip(
            rows,
            random.sample([damage_kind for damage_kind in DAMAGE_KINDS if damage_kind != "swap"], 3),
            strict=False,
        ):
            directory = installation.settings.artifact_dir(run_id) / row.path
            damage(directory, damage_kind, directory, random.Random())
            installation.damaged.add(f"{run_id}/{row.path}")
        send(trainer.pid, signal.SIGKILL)
        installation.wait_until_ended([run_id])
        run = installation.read(run_id)
        with open_read_session(installation.sessions) as session:
            messages_told = session.scalars(select(Event.message).where(Event.kind == "checkpoint")).all()
        assert run.status == "failed"
        assert "none of the run's 3 checkpoints is complete" in run.reason
        assert len([message for message in messages_told if message.startswith("refused: ")]) == 3
        assert run.last_step >= rows[0].step  # no training continued from it
        assert audit(installation.sessions, installation.settings.state, damaged=installation.damaged) == []
