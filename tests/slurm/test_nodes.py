"""Test of a run on two Slurm nodes, with a worker on each node, whose job is cancelled during training."""

import subprocess
import sys

import pytest

from backend.config.merge import merge
from backend.metrics.lineage import LineageSegment
from backend.metrics.windows import iterate_points, load_run_points
from backend.storage.engine import open_read_session
from tests.factories import make_run
from tests.faults.plant import FaultyInstallation, Kind
from tests.faults.processes import ROOT
from tests.ports import free_port
from tests.slurm.cluster import reason_without_cluster, running_cluster
from tests.waiting import wait_for
from tests.worker.training.ranks import CASES, SMALL_CONFIG, train

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800)]

STEP_COUNT = 12

RUN_CONFIG = {
    **merge(SMALL_CONFIG, CASES["GRPO"]),
    "steps": STEP_COUNT,
    "checkpointing": {"every": 1},
    "resources": {"nodes": 2},
}


@pytest.fixture
def cluster(tmp_path):
    if reason := reason_without_cluster():
        pytest.skip(reason)
    with running_cluster(tmp_path / "box", port=free_port(), node_ports=[free_port(), free_port()]):
        yield


def test_a_run_on_two_nodes_continues_in_the_next_job_after_a_cancellation(cluster, capsys):
    with FaultyInstallation(
        Kind("sqlite", "filesystem"), workers=0, slots=1, lease_seconds=10
    ) as installation:
        with installation.sessions.begin() as session:
            run_id = make_run(session, config=RUN_CONFIG, nodes=2).id
        command = [sys.executable, "-m", "backend.service", "pilots", "slurm", "--every=1", "--most=1"]
        command += ["--runs=1", "--idle=60", "--nodes=2"]
        provisioner = subprocess.Popen(
            command, env={**installation.environment, "NODE_ADDRESS": "127.0.0.1"}, cwd=ROOT
        )
        try:
            wait_for(lambda: installation.read(run_id).last_step >= 2, "it trains", seconds=300)
            subprocess.run(["scancel", "--user=root"], check=True, timeout=60)
            installation.wait_until_ended([run_id])
        finally:
            provisioner.terminate()
            assert provisioner.wait(60) == 0
        run = installation.read(run_id)
        assert (run.status, run.attempt, run.own_failures) == ("finished", 2, 0), run.reason
        with open_read_session(installation.sessions) as session:
            (segment,) = load_run_points(session, [LineageSegment(run_id)])
            points = [point for point in iterate_points(session, segment) if point.name == "optim/grad_norm"]
    norm_by_step = {point.step: point.value for point in points if point.step}
    single_process_run = train(CASES["GRPO"], ranks=1, steps=STEP_COUNT)
    expected = {step: metrics["optim/grad_norm"] for step, metrics in enumerate(single_process_run.steps, 1)}
    assert norm_by_step.keys() == expected.keys()
    assert max(abs(norm_by_step[step] - expected[step]) for step in expected) < 1e-5
    with capsys.disabled():
        print(f"{STEP_COUNT} steps on 2 nodes, {run.attempt} attempts")
