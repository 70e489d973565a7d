"""Tests of the trainer process with the tiny policy: its protocol, exit codes and outcomes."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import func, select, update

from backend.base.settings import Settings
from backend.config.merge import resolve
from backend.runs import lifecycle
from backend.runs.workers.devices import Slot
from backend.storage.engine import database_address
from backend.storage.models import Checkpoint, Metric, Run
from tests.faults.plant import STUB_PATH
from worker.host.trainer_process import trainer_environment
from worker.outcome import EXIT_FENCED

ROOT = Path(__file__).parents[3]

QUICK_CONFIG = {
    "steps": 200,
    "sampling": {"prompts_per_step": 2, "group_size": 2, "max_new_tokens": 16},
    "evaluation": {"every": 0},
}


@pytest.fixture
def settings(state_dir, sqlite_url):
    return Settings(state_dir=state_dir, database_url=sqlite_url, models_dir=state_dir)


@pytest.fixture
def trainer(settings, monkeypatch):
    """A trainer process that has reported that it is ready."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with started_trainer([sys.executable, "-m", "worker.train"], settings) as process:
        yield process


@pytest.fixture
def forked_trainer(settings, warm):
    """A trainer process that is forked from a warm parent, without its own imports."""
    with started_trainer([sys.executable, "-I", "-S", str(STUB_PATH), str(warm)], settings) as process:
        yield process


@contextmanager
def started_trainer(command, settings):
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command,
        stdin=pipe,
        stdout=pipe,
        stderr=subprocess.STDOUT,
        env=trainer_environment(settings, Slot(0, "cpu", "CPU", 1), os.environ),
        cwd=ROOT,
        text=True,
    )
    assert json.loads(process.stdout.readline()) == {"ready": True}
    with process:
        yield process
        process.kill()


def give_run(trainer, sessions, **config):
    """Queue a run, claim it and assign it to the trainer."""
    return give(trainer, sessions, resolve({**QUICK_CONFIG, **config}).model_dump(mode="json"))


def give(trainer, sessions, document):
    with sessions.begin() as session:
        run = Run(name="r", variant="", seed=0, config=document, config_hash="", steps=200, status="queued")
        session.add(run)
        session.flush()
        claim = lifecycle.claim_run(session, "worker", "host")
    order = {"run_id": claim.run_id, "attempt": claim.attempt, "device": "cpu", "threads": 1}
    order["database_url"] = database_address(sessions).render_as_string(hide_password=False)
    trainer.stdin.write(json.dumps(order) + "\n")
    trainer.stdin.flush()
    return claim.run_id


def read(sessions, run_id):
    with sessions() as session:
        return session.get_one(Run, run_id)


def wait_for_step(sessions, run_id, step):
    deadline = time.monotonic() + 300
    while read(sessions, run_id).last_step < step:
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def test_sigterm_saves_the_running_step_and_releases_the_run(forked_trainer, sessions):
    run_id = give_run(forked_trainer, sessions)
    wait_for_step(sessions, run_id, 1)
    forked_trainer.send_signal(signal.SIGTERM)
    assert forked_trainer.wait(170) == 0
    run = read(sessions, run_id)
    assert (run.status, run.reason) == ("queued", "the worker was asked to stop")
    with sessions() as session:
        assert session.scalars(select(Checkpoint.step)).all() == [run.last_step]


def test_a_missing_policy_fails_the_run_with_a_reason(forked_trainer, sessions):
    run_id = give_run(forked_trainer, sessions, policy={"name": "nobody/has-this"})
    assert forked_trainer.wait(170) == 0
    run = read(sessions, run_id)
    assert run.status == "failed"
    assert "nobody/has-this" in run.reason
    assert "Traceback" not in run.reason


def test_a_prompt_that_exceeds_the_context_only_in_tokens_fails_the_run(forked_trainer, sessions):
    sampling = {"prompts_per_step": 2, "group_size": 2, "max_new_tokens": 1020}
    run_id = give_run(forked_trainer, sessions, sampling=sampling)
    assert forked_trainer.wait(170) == 0
    run = read(sessions, run_id)
    assert run.status == "failed"
    assert "expected at most 4 (context 1024 less max_new_tokens 1020)" in run.reason
    assert "Traceback" not in run.reason


def test_a_trainer_that_lost_its_run_writes_nothing_more(forked_trainer, sessions):
    run_id = give_run(forked_trainer, sessions)
    wait_for_step(sessions, run_id, 1)
    with sessions.begin() as session:
        session.execute(update(Run).values(attempt=2))
        last = session.scalar(select(func.max(Metric.step)))
    assert forked_trainer.wait(170) == EXIT_FENCED
    with sessions() as session:
        assert session.scalar(select(func.max(Metric.step))) == last
    assert read(sessions, run_id).status == "running"
