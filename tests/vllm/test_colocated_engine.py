"""Tests of vLLM alongside the trainer with a real vLLM, on a GPU or a CPU: `make test-vllm`."""

import os
import signal
import socket
from pathlib import Path

import psutil
import pytest
import torch

from backend.base.sandbox import bubblewrap
from backend.config.adapters import NoAdapter
from backend.config.engines import ColocatedEngine as ColocatedConfig
from backend.config.sections import PolicyConfig
from backend.storage.engine import new_id, open_read_session
from tests.faults.plant import FaultyInstallation, Kind
from tests.faults.processes import is_alive
from tests.faults.verdict import read_record
from tests.models.architectures import save
from tests.vllm.test_server_engine import ADAPTERS, MAX_K3, PROMPTS, learn
from tests.vllm.vllm_server import HEAD_WIDTH, interpreter
from tests.waiting import wait_for
from worker.policy.model import load_policy
from worker.rollout.colocated_engine import ColocatedEngine
from worker.rollout.sampler import Decoding

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.nightly,
    pytest.mark.timeout(7200),
    pytest.mark.skipif(interpreter() is None, reason="vLLM is not installed: `make test-vllm` does it"),
]

STEP_COUNT = 20
LISTENING_STATE = "0A"
"""The state of a listening socket in /proc/net/tcp."""

HAS_GPU = torch.cuda.is_available()


@pytest.fixture
def installation(tmp_path):
    """An installation whose worker is configured with the path of vLLM."""
    save("qwen3", tmp_path / "small", vocabulary=128, head_dim=HEAD_WIDTH)
    with FaultyInstallation(Kind("sqlite", "filesystem"), workers=0, slots=1) as started_installation:
        variables = {"ENGINE_PYTHON": str(interpreter()), "ENGINE_ARGUMENTS": "--enforce-eager"}
        started_installation.start_worker(MODELS_DIR=str(tmp_path), **variables)
        yield started_installation


def make_config(adapter):
    return {
        "preset": "grpo",
        "steps": STEP_COUNT,
        "policy": {"name": "small", "dtype": "float32", "adapter": adapter.model_dump()},
        "problems": [{"name": "sums", "operands": 2, "low": 1, "high": 60}],
        "rewards": [{"name": "correctness"}, {"name": "length", "weight": 0.1}],
        "sampling": {
            "prompts_per_step": 4,
            "group_size": 4,
            "max_new_tokens": 32,
            "engine": {
                "type": "colocated",
                "memory_share": 0.3 if HAS_GPU else 0.1,
                "start_seconds": 3600,
                "largest_mismatch": MAX_K3,
            },
        },
        "optimizer": {"lr": 1e-3},
        "evaluation": {"every": 10, "prompts": 4},
        "checkpointing": {"every": 5},
    }


def series(installation, run, name):
    with open_read_session(installation.sessions) as session:
        record = read_record(session, run)
    return [record[name, step].value for step in range(1, STEP_COUNT + 1)]


@ADAPTERS
def test_a_run_trains_on_samples_of_a_colocated_vllm(installation, capsys, adapter):
    (run,) = installation.queue([make_config(adapter)])
    installation.wait_until_ended([run], seconds=3600)
    assert (installation.read(run).status, installation.read(run).reason) == ("finished", "")
    k3 = series(installation, run, "mismatch/k3")
    with capsys.disabled():
        print(f"mismatch/k3 of {STEP_COUNT} steps: {min(k3):.1e} to {max(k3):.1e}")
    assert max(map(abs, k3)) < MAX_K3
    assert set(series(installation, run, "sampling/engine_restarts")) == {0.0}


def test_killed_vllm_and_trainer_processes_are_replaced(installation):
    (run,) = installation.queue([make_config(NoAdapter())])
    [trainer] = wait_for(installation.trainers, "it trains", seconds=3600)
    wait_for(lambda: installation.read(run).last_step >= 2, "steps are learned", seconds=3600)
    vllm_processes = list_vllm_processes(trainer.pid)
    assert_ports_are_private(vllm_processes)
    os.kill(vllm_processes[0].pid, signal.SIGKILL)
    target_step = installation.read(run).last_step + 2
    wait_for(lambda: installation.read(run).last_step >= target_step, "it goes on", seconds=3600)
    assert not any(is_alive(process.pid) for process in vllm_processes)
    vllm_processes = list_vllm_processes(trainer.pid)
    os.kill(trainer.pid, signal.SIGKILL)
    wait_for(lambda: not any(is_alive(process.pid) for process in vllm_processes), "vLLM is gone")
    installation.wait_until_ended([run], seconds=3600)
    assert (installation.read(run).status, installation.read(run).attempt) == ("finished", 2)
    assert max(map(abs, series(installation, run, "mismatch/k3"))) < MAX_K3


def assert_ports_are_private(processes):
    """Check that the ports of torch and gloo cannot be reached from this machine's network."""
    if bubblewrap.isolation_unavailable_reason():
        return
    own_network = read_network("self")
    isolated_pids = [process.pid for process in processes if read_network(process.pid) != own_network]
    assert isolated_pids  # all except the process that waits for the others
    lines = [
        line.split()
        for pid in isolated_pids
        for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]
    ]
    for port in {int(line[1].partition(":")[2], 16) for line in lines if line[3] == LISTENING_STATE}:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 5)


def read_network(process):
    return Path(f"/proc/{process}/ns/net").readlink()


def list_vllm_processes(trainer):
    """Return the processes of the server alongside a trainer, the parent first."""
    children = psutil.Process(trainer).children()
    [first] = [
        child for child in children if any("vllm.entrypoints" in argument for argument in child.cmdline())
    ]
    return [first, *first.children(recursive=True)]


@pytest.mark.skipif(not HAS_GPU, reason="vLLM sleeps on GPUs only")
@ADAPTERS
def test_vllm_releases_its_memory_while_the_policy_learns(tmp_path, settings, adapter):
    save("qwen3", tmp_path / "small", vocabulary=128, head_dim=HEAD_WIDTH)
    with_engine = settings.model_copy(update={"engine_python": str(interpreter()), "models_dir": tmp_path})
    policy = load_policy(PolicyConfig(name="small", adapter=adapter), with_engine, device="cuda")
    config = ColocatedConfig(memory_share=0.3, largest_mismatch=MAX_K3)
    engine = ColocatedEngine(
        config, policy, with_engine, model=tmp_path / "small", run_id=new_id(), attempt=1, max_tokens=1024
    )
    total = torch.cuda.mem_get_info()[1]
    try:
        engine.check()
        for version in range(3):
            asleep = torch.cuda.mem_get_info()[0]
            engine.sync(version, policy)
            awake = torch.cuda.mem_get_info()[0]
            assert asleep - awake > 0.2 * total
            engine.sample(PROMPTS, 4, Decoding(32), torch.Generator().manual_seed(version))
            engine.release_memory()
            assert torch.cuda.mem_get_info()[0] - awake > 0.2 * total
            learn(policy, version)
    finally:
        engine.close()
