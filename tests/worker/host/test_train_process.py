"""The trainer's process itself, with the tiny policy: its protocol, its exit codes, its outcomes."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from sqlalchemy import func, select, update
from transformers import AutoModelForCausalLM

from backend.base.settings import Settings
from backend.config.merge import resolve
from backend.runs import lifecycle
from backend.runs.workers.devices import Slot
from backend.storage.engine import open_engine, open_sessions, url_of
from backend.storage.models import Attempt, Checkpoint, Metric, Run
from tests.faults.plant import STUB
from worker.host.trainer_process import trainer_environment
from worker.outcome import EXIT_FAILED, EXIT_FENCED, EXIT_ORPHANED
from worker.policy.model import BUILT_IN

ROOT = Path(__file__).parents[3]

QUICK = {
    "steps": 200,
    "sampling": {"prompts_per_step": 2, "group_size": 2, "max_new_tokens": 16},
    "evaluation": {"every": 0},
}


@pytest.fixture
def settings(state_dir, sqlite_url):
    return Settings(state_dir=state_dir, database_url=sqlite_url, models_dir=state_dir)


@pytest.fixture
def sessions(settings):
    engine = open_engine(settings.effective_database_url)
    yield open_sessions(engine)
    engine.dispose()


@pytest.fixture
def trainer(settings, monkeypatch):
    """A trainer process that has said that it is ready."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    with started([sys.executable, "-m", "worker.train"], settings) as process:
        yield process


@pytest.fixture
def forked(settings, warm):
    """The same without its imports."""
    with started([sys.executable, "-I", "-S", str(STUB), str(warm)], settings) as process:
        yield process


@contextmanager
def started(command, settings):
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
    return give(trainer, sessions, resolve({**QUICK, **config}).model_dump(mode="json"))


def give(trainer, sessions, document):
    with sessions.begin() as session:
        run = Run(name="r", variant="", seed=0, config=document, config_hash="", steps=200, status="queued")
        session.add(run)
        session.flush()
        claim = lifecycle.claim_run(session, "worker", "host")
    order = {"run_id": claim.run_id, "attempt": claim.attempt, "device": "cpu", "threads": 1}
    order["database_url"] = url_of(sessions).render_as_string(hide_password=False)
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


@pytest.mark.nightly
def test_a_short_run_is_finished_with_a_checkpoint_and_its_versions(trainer, sessions):
    run_id = give_run(trainer, sessions, steps=2)
    assert trainer.wait(170) == 0
    run = read(sessions, run_id)
    assert (run.status, run.last_step) == ("finished", 2)
    with sessions() as session:
        assert session.scalars(select(Checkpoint.step)).all() == [2]
        assert session.get_one(Attempt, (run_id, 1)).versions.keys() == {"torch", "transformers", "sandbox"}


def test_sigterm_saves_the_running_step_and_gives_the_run_back(forked, sessions):
    run_id = give_run(forked, sessions)
    wait_for_step(sessions, run_id, 1)
    forked.send_signal(signal.SIGTERM)
    assert forked.wait(170) == 0
    run = read(sessions, run_id)
    assert (run.status, run.reason) == ("queued", "the worker was asked to stop")
    with sessions() as session:
        assert session.scalars(select(Checkpoint.step)).all() == [run.last_step]


def test_a_policy_that_is_not_there_fails_the_run_with_its_reason(forked, sessions):
    run_id = give_run(forked, sessions, policy={"name": "nobody/has-this"})
    assert forked.wait(170) == 0
    run = read(sessions, run_id)
    assert run.status == "failed"
    assert "nobody/has-this" in run.reason
    assert "Traceback" not in run.reason


def test_a_prompt_that_only_the_tokenizer_knows_to_be_too_long_fails_the_run(forked, sessions):
    sampling = {"prompts_per_step": 2, "group_size": 2, "max_new_tokens": 1020}
    run_id = give_run(forked, sessions, sampling=sampling)
    assert forked.wait(170) == 0
    run = read(sessions, run_id)
    assert run.status == "failed"
    assert "expected at most 4 (context 1024 less max_new_tokens 1020)" in run.reason
    assert "Traceback" not in run.reason


def test_an_unexpected_error_is_reported_in_one_line(forked, sessions):
    run_id = give(forked, sessions, {"steps": "many"})
    assert forked.wait(170) == EXIT_FAILED
    reports = [line for line in forked.stdout.read().splitlines() if line.startswith('{"failed"')]
    assert json.loads(reports[0])["failed"]["reason"].startswith("ValidationError: ")
    assert read(sessions, run_id).status == "running"  # its supervisor decides


@pytest.mark.nightly
def test_want_of_memory_is_told_with_its_numbers(trainer, sessions, settings):
    """Weights that do not fit, as rows of a batch are halved until they do."""
    large = AutoModelForCausalLM.from_pretrained(BUILT_IN["tiny"])
    large.resize_token_embeddings(1_000_000, mean_resizing=False)
    large.save_pretrained(settings.models_dir / "large")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(BUILT_IN["tiny"] / name, settings.models_dir / "large")
    process = psutil.Process(trainer.pid)
    limit = process.memory_info().vms + 300_000_000
    process.rlimit(psutil.RLIMIT_AS, (limit, limit))
    run_id = give_run(trainer, sessions, policy={"name": "large"})
    assert trainer.wait(170) == EXIT_FAILED
    (report,) = [line for line in trainer.stdout.read().splitlines() if line.startswith('{"failed"')]
    failed = json.loads(report)["failed"]
    assert failed["kind"] == "memory"
    assert re.match(
        r"out of memory \(the trainer took [\d.]+ [MG]B of the machine's [\d.]+ GB\): ", failed["reason"]
    )
    assert read(sessions, run_id).status == "running"  # its supervisor tries once more


def test_a_trainer_whose_run_was_taken_writes_nothing_more(forked, sessions):
    run_id = give_run(forked, sessions)
    wait_for_step(sessions, run_id, 1)
    with sessions.begin() as session:
        session.execute(update(Run).values(attempt=2))
        last = session.scalar(select(func.max(Metric.step)))
    assert forked.wait(170) == EXIT_FENCED
    with sessions() as session:
        assert session.scalar(select(func.max(Metric.step))) == last
    assert read(sessions, run_id).status == "running"


@pytest.mark.nightly
def test_without_its_supervisor_a_trainer_is_gone_at_once(trainer, sessions):
    run_id = give_run(trainer, sessions)
    wait_for_step(sessions, run_id, 1)
    trainer.stdin.close()
    assert trainer.wait(60) == EXIT_ORPHANED
    assert read(sessions, run_id).last_step < 200
