"""Tests of runs on several ranks, which equal one process and lose nothing if a rank dies."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch
from sqlalchemy import select

from backend.base.errors import InvalidConfig
from backend.base.settings import Settings
from backend.config.merge import resolve
from backend.runs import lifecycle
from backend.runs.workers.devices import Slot
from backend.storage.engine import open_engine, open_sessions
from backend.storage.models import Attempt, Metric, MetricKey, Run
from tests.factories import make_run
from tests.worker.training.ranks import CASES, compare_runs, train
from worker.checkpoints.files import load_checkpoint, save_checkpoint
from worker.checkpoints.store import RestoredCheckpoint
from worker.host.supervisor import Supervisor
from worker.policy.ranks import Ranks, UnlikeRanks, check_alike

ROOT = Path(__file__).parents[3]

MAX_WEIGHT_DIFFERENCE = 1e-5
"""Largest difference of a weight that the order of float32 sums may cause."""

MAX_METRIC_DIFFERENCE = 1e-4
"""Largest difference of a metric, and of a gradient norm relative to its value."""

FLOAT64_CASES = ["GRPO", "DAPO", "GSPO", "PPO with a critic", "GRPO, LoRA"]
"""Objectives that are tested in float64. Mixtures are not, because torch's grouped product lacks it."""

MAX_FLOAT64_DIFFERENCE = 1e-9
"""Largest difference after 20 steps in float64, which only a difference in computation can exceed."""


def test_each_rank_gets_neighbouring_completions_with_about_the_same_work():
    tokens = torch.tensor([10, 10, 10, 10, 40])
    assert Ranks(0, 2).local_rows(tokens).tolist() == [0, 1, 2, 3]
    assert Ranks(1, 2).local_rows(tokens).tolist() == [4]
    assert Ranks().local_rows(tokens).tolist() == [0, 1, 2, 3, 4]


def test_ranks_with_other_versions_or_devices_are_refused_by_name():
    alike = {"torch": "2.13.0", "device": "NVIDIA H100"}
    check_alike([alike, dict(alike)])
    with pytest.raises(UnlikeRanks, match=r"rank 1 has torch 2\.12\.0, rank 0 has 2\.13\.0"):
        check_alike([alike, alike | {"torch": "2.12.0"}])
    with pytest.raises(UnlikeRanks, match="rank 2 has device cpu, rank 0 has NVIDIA H100"):
        check_alike([alike, alike, alike | {"device": "cpu"}])


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"optimizer": {"moments": "int8"}}, "optimizer.moments"),
        ({"optimizer": {"paged": True}}, "optimizer.paged"),
        ({"resources": {"packing": "on"}}, "resources.packing"),
        ({"resources": {"offload_optimizer": True}}, "resources.offload_optimizer"),
        ({"updates": {"epochs": 2, "resample_each_epoch": True}}, "updates.resample_each_epoch"),
        ({"objective": {"reference": {"type": "ema"}}}, "objective.reference.type"),
    ],
)
def test_features_for_one_device_are_refused_with_their_field(changes, field):
    resolve(changes)
    changes = changes | {"resources": {"devices": 2, **changes.get("resources", {})}}
    with pytest.raises(InvalidConfig) as error_info:
        resolve(changes)
    assert any(
        error.path == field and "resources.devices is 2" in error.message for error in error_info.value.errors
    )


class Files:
    """Checkpoints in one directory, without a database."""

    run_id, attempt = "", 0

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.restored_checkpoint: RestoredCheckpoint | None = None

    def restore(self, policy, parts):
        if not self.directory.is_dir():
            return None
        checkpoint = load_checkpoint(self.directory, policy, parts)
        self.restored_checkpoint = RestoredCheckpoint(self.directory, checkpoint.restored_parts)
        return checkpoint.step

    def save(self, policy, parts, *, step, accuracy):  # noqa: ARG002
        save_checkpoint(self.directory, policy, parts, step=step)

    def finish(self):
        """Do nothing, because there is no artifact store."""


@pytest.mark.parametrize(
    "case", ["PPO with a critic", pytest.param("RSPO, mixture, replay", marks=pytest.mark.nightly)]
)
def test_steps_on_two_ranks_before_and_after_a_restart_match_those_of_one_process(case, tmp_path):
    one_process_run = train(CASES[case], ranks=1, steps=3)
    first_part = train(CASES[case], ranks=2, steps=2, checkpoints=Files(tmp_path / "checkpoint"))
    second_part = train(CASES[case], ranks=2, steps=3, checkpoints=Files(tmp_path / "checkpoint"))
    whole_run = second_part._replace(
        steps=first_part.steps + second_part.steps, weights_before=first_part.weights_before
    )
    differences = compare_runs(one_process_run, whole_run)
    assert max(differences.norm, differences.metric) < MAX_METRIC_DIFFERENCE, differences
    assert differences.weight < MAX_WEIGHT_DIFFERENCE < differences.weight_change, differences


@pytest.mark.nightly
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("case", [case for case in CASES if case not in FLOAT64_CASES])
def test_many_steps_match_those_of_one_process(case, ranks):
    differences = compare_runs(
        train(CASES[case], ranks=1, steps=20), train(CASES[case], ranks=ranks, steps=20)
    )
    assert max(differences.norm, differences.metric) < MAX_METRIC_DIFFERENCE, differences
    assert differences.weight < MAX_WEIGHT_DIFFERENCE < differences.weight_change, differences


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("case", FLOAT64_CASES)
def test_many_steps_in_float64_match_those_of_one_process(case):
    command = [
        sys.executable,
        "-m",
        "tests.worker.training.ranks",
        "--wide",
        "--ranks",
        "2",
        "4",
        "--cases",
        case,
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    rows = [line.split(" | ") for line in result.stdout.splitlines() if line.startswith(f"| {case} | ")]
    assert [row[1] for row in rows] == ["2", "4"]
    for _, _, norm, metric, _, _, weight, weight_change in rows:
        differences = [float(norm), float(metric), float(weight)]
        assert (
            max(differences)
            < MAX_FLOAT64_DIFFERENCE
            < MAX_WEIGHT_DIFFERENCE
            < float(weight_change.rstrip(" |"))
        ), result.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("case", ["GRPO, LoRA", "PPO with a critic", "RSPO, mixture, replay"])
def test_a_run_saved_on_two_ranks_continues_on_one_and_on_four(case, tmp_path):
    uninterrupted_run = train(CASES[case], ranks=1, steps=6)
    for ranks in (1, 4):
        directory = tmp_path / str(ranks)
        train(CASES[case], ranks=2, steps=3, checkpoints=Files(directory))
        resumed_run = train(CASES[case], ranks=ranks, steps=6, checkpoints=Files(directory))
        differences = compare_runs(uninterrupted_run._replace(steps=uninterrupted_run.steps[3:]), resumed_run)
        assert max(differences.norm, differences.metric) < MAX_METRIC_DIFFERENCE, differences
    assert differences.weight < MAX_WEIGHT_DIFFERENCE < differences.weight_change, differences


@pytest.mark.nightly
def test_a_killed_rank_ends_the_attempt_and_loses_no_step(state_dir, sqlite_url, monkeypatch):
    kill_at_random(1, state_dir, sqlite_url, monkeypatch, ranks=2)


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_twenty_killed_ranks_lose_no_step(state_dir, sqlite_url, monkeypatch):
    kill_at_random(20, state_dir, sqlite_url, monkeypatch, ranks=2)


def kill_at_random(kills, state_dir, sqlite_url, monkeypatch, *, ranks):
    """Train a run while this number of its attempts lose a rank to SIGKILL, and then let it finish."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    rng = random.Random(0)
    settings = Settings(state_dir=state_dir, database_url=sqlite_url, lease_seconds=60)
    engine = open_engine(settings.effective_database_url)
    # More steps than the attempts train before they are killed, so that none finishes the run.
    sessions, steps = open_sessions(engine), 8 * kills + 3
    config = {
        "steps": steps,
        "sampling": {"prompts_per_step": 2, "group_size": 2, "max_new_tokens": 16},
        "rewards": [{"name": "length"}],
        "evaluation": {"every": 0},
        "checkpointing": {"every": 1},
        "resources": {"devices": ranks},
    }
    with sessions.begin() as session:
        run_id = make_run(session, config=config, devices=ranks).id
    supervisor = Supervisor(settings, sessions, Slot(0, "cpu", "CPU", ranks), threading.Event())
    try:
        for kill in range(kills):
            with sessions() as session:
                trained_steps = session.get_one(Run, run_id).last_step
            thread = start_attempt(supervisor, sessions)
            wait_for_step(sessions, run_id, trained_steps + 2)
            time.sleep(rng.random() / 4)
            os.kill(
                rng.choice(list_rank_pids(sessions, run_id, kill + 1))
                if kills > 1
                else last_rank(sessions, run_id),
                signal.SIGKILL,
            )
            thread.join(60)
            assert not thread.is_alive()
            with sessions() as session:
                run = session.get_one(Run, run_id)
                assert (run.status, run.own_failures) == ("queued", 0), run.reason
                assert run.reason == "the trainer was ended by SIGKILL"
        start_attempt(supervisor, sessions).join(300)
        with sessions() as session:
            assert session.get_one(Run, run_id).status == "finished"
            key = session.scalar(select(MetricKey.id).where(MetricKey.name == "reward/mean"))
            stored_steps = session.scalars(
                select(Metric.step).where(Metric.run_id == run_id, Metric.key_id == key)
            )
            assert set(stored_steps) >= set(range(1, steps + 1))
    finally:
        supervisor.close()
        engine.dispose()


def start_attempt(supervisor, sessions):
    """Claim the run and let its trainer start."""
    deadline = time.monotonic() + 300
    claim = None
    while claim is None:
        assert time.monotonic() < deadline, "the run does not wait"
        with sessions.begin() as session:
            claim = lifecycle.claim_run(session, "worker", "host", room=8, max_devices=8)
    thread = threading.Thread(target=supervisor.supervise, args=(claim,))
    thread.start()
    return thread


def wait_for_step(sessions, run_id, step):
    deadline = time.monotonic() + 300
    while True:
        with sessions() as session:
            run = session.get_one(Run, run_id)
            if run.last_step >= step:
                return
            assert run.status == "running", run.reason
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def list_rank_pids(sessions, run_id, attempt):
    """Return the process ids of all ranks of an attempt, rank 0 first."""
    with sessions() as session:
        trainer = psutil.Process(session.get_one(Attempt, (run_id, attempt)).pid)
    return [
        trainer.pid,
        *(process.pid for process in trainer.children() if "worker.training.follower" in process.cmdline()),
    ]


def last_rank(sessions, run_id):
    """Return the process id of the last rank of the first attempt."""
    return list_rank_pids(sessions, run_id, 1)[-1]
