"""Test that runs on Slurm pilots lose nothing while jobs are cancelled and requeued.

`GRPOLAB_SLURM_RUNS=50 make test-slurm` is the long form."""

import os
import random
import subprocess
import sys
import time

import pytest

from backend.storage.engine import open_read_session
from tests.faults.campaign import configs, references
from tests.faults.plant import FaultyInstallation, Kind
from tests.faults.processes import ROOT
from tests.faults.verdict import read_record
from tests.ports import free_port
from tests.slurm.cluster import reason_without_cluster, running_cluster

RUN_COUNT = int(os.environ.get("GRPOLAB_SLURM_RUNS", "3"))
MEAN_PAUSE_SECONDS = float(os.environ.get("GRPOLAB_SLURM_SECONDS", "40"))
"""Mean time between two disturbances, of which one often comes while a worker is starting."""

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(7200)]


@pytest.fixture
def cluster(tmp_path):
    if reason := reason_without_cluster():
        pytest.skip(reason)
    with running_cluster(tmp_path / "box", port=free_port(), node_ports=[free_port()]):
        yield


def jobs(state):
    listing = ["squeue", "--noheader", "--format=%A", f"--states={state}"]
    return subprocess.run(listing, capture_output=True, text=True, check=True, timeout=60).stdout.split()


def interfere(rng):
    """Cancel or requeue one running pilot, gracefully or by SIGKILL, and return the action."""
    running_jobs = jobs("R")
    if not running_jobs:
        return ""
    job = rng.choice(running_jobs)
    command = rng.choice(["scancel", "scancel --signal=KILL --full", "scontrol requeue"])
    subprocess.run([*command.split(), job], check=False, timeout=60, capture_output=True)
    return command


def test_runs_of_pilots_end_as_if_no_job_had_been_cancelled(cluster, capsys):
    rng = random.Random(RUN_COUNT)
    run_configs = configs(RUN_COUNT, steps=12)
    kind = Kind("sqlite", "filesystem")
    with FaultyInstallation(kind, workers=1, slots=2) as installation:
        expected = references(installation, run_configs)
    with FaultyInstallation(kind, workers=0, slots=1, lease_seconds=10) as installation:
        run_ids = installation.queue(run_configs)
        command = [sys.executable, "-m", "backend.service", "pilots", "slurm", "--every=1", "--most=2"]
        command += ["--runs=3", "--idle=20"]
        provisioner = subprocess.Popen(command, env=installation.environment, cwd=ROOT)
        actions, quiet_until = [], time.monotonic() + 2 * MEAN_PAUSE_SECONDS
        try:
            while installation.unended(run_ids):
                if time.monotonic() > quiet_until:
                    actions.append(interfere(rng))
                    quiet_until = time.monotonic() + rng.expovariate(1 / MEAN_PAUSE_SECONDS)
                time.sleep(0.2)
        finally:
            provisioner.terminate()
            assert provisioner.wait(60) == 0
        with open_read_session(installation.sessions) as session:
            records = [read_record(session, run) for run in run_ids]
            attempts = sum(installation.read(run).attempt for run in run_ids)
        assert [installation.read(run).status for run in run_ids] == ["finished"] * RUN_COUNT
        assert records == expected
    with capsys.disabled():
        counts = {command: actions.count(command) for command in sorted({*actions} - {""})}
        print(f"{RUN_COUNT} runs, {attempts} attempts, {counts}")
