"""Tests of vLLM as a process alongside the trainer: start, failures and end, with a fake program."""

import json
import logging
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from backend.base.errors import EngineFailed
from backend.base.logs import APPLICATION_LOGGERS
from backend.base.redaction import add_secrets
from backend.base.sandbox import bubblewrap
from tests.faults.processes import is_alive
from tests.waiting import wait_for
from tests.worker.rollout import fake_vllm
from worker.rollout.vllm_process import SOCKET, Command, VllmProcess

ROOT = Path(__file__).parents[3]
API_KEY = "the-key-of-this-attempt"


@pytest.fixture
def misbehaving_vllm(state_dir, monkeypatch):
    """A function that configures how the fake vLLM misbehaves."""
    add_secrets(API_KEY)
    directory = state_dir / "vllm"
    directory.mkdir(mode=0o700)

    def make_command(fault=""):
        program = fake_vllm.install(state_dir)
        argv = [program, "-m", "vllm.entrypoints.openai.api_server", "--served-model-name", "policy"]
        variables = {
            "VLLM_API_KEY": API_KEY,
            "VLLM_RPC_BASE_PATH": str(directory),
            fake_vllm.FAULT_VARIABLE: fault,
        }
        return Command([*argv, "--uds", str(directory / SOCKET)], variables, directory)

    return make_command


@pytest.fixture(params=["apart", "guarded"])
def isolation(request, monkeypatch):
    """The isolation level of the server process."""
    if request.param == "guarded":
        monkeypatch.setattr(bubblewrap, "isolation_unavailable_reason", lambda: "a test")
    elif reason := bubblewrap.isolation_unavailable_reason():
        pytest.skip(reason)
    return request.param


def list_processes(directory):
    """Return every process with a file of this directory in its arguments or variables."""
    pids = []
    for process in psutil.process_iter():
        try:
            command_line = " ".join([*process.cmdline(), process.environ().get("VLLM_RPC_BASE_PATH", "")])
        except psutil.Error:
            continue
        if str(directory) in command_line and process.status() != psutil.STATUS_ZOMBIE:
            pids.append(process.pid)
    return pids


def never():
    return False


def test_the_server_answers_on_a_private_socket_and_leaves_no_process(misbehaving_vllm, isolation):
    launch = misbehaving_vllm()
    process = VllmProcess(launch)
    assert process.answers(seconds=300, is_unwanted=never)
    assert process.is_apart == (isolation == "apart")
    assert stat.S_IMODE(launch.socket.stat().st_mode) & 0o077 == 0
    assert len(list_processes(launch.directory)) >= 2
    process.kill()
    assert not process.is_running()
    wait_for(lambda: not list_processes(launch.directory), "all of it is gone")


@pytest.mark.parametrize(
    ("how", "phrase"),
    [
        (
            "dies",
            r"head_dim 16 is not supported; the key is \[secret\] \.\.\. RuntimeError: .* \(exit code 1\)$",
        ),
        (
            "memory",
            r"less than desired GPU memory utilization .* another sampling.engine.memory_share may fit",
        ),
        ("never", r"vLLM did not start within 2 s \(sampling.engine.start_seconds\): it said nothing"),
    ],
)
def test_a_failed_start_reports_its_reason(misbehaving_vllm, how, phrase):
    launch = misbehaving_vllm(how)
    process = VllmProcess(launch)
    with pytest.raises(EngineFailed, match=phrase):
        process.answers(seconds=2 if how == "never" else 300, is_unwanted=never)
    assert not process.is_running()
    wait_for(lambda: not list_processes(launch.directory), "all of it is gone")


def test_output_is_part_of_the_runs_log_without_the_key(misbehaving_vllm, caplog):
    with caplog.at_level(logging.INFO), pytest.raises(EngineFailed):
        VllmProcess(misbehaving_vllm("dies")).answers(seconds=300, is_unwanted=never)
    [line] = [record for record in caplog.records if "head_dim 16" in record.getMessage()]
    assert line.name.partition(".")[0] in APPLICATION_LOGGERS  # later versions only report warnings
    assert API_KEY not in caplog.text


PARENT_SCRIPT = """
import json, sys, time
from pathlib import Path
from backend.base.sandbox import bubblewrap
from worker.rollout.vllm_process import Command, VllmProcess
argv, environment, directory, kept = json.loads(sys.argv[1])
if kept == "guarded":
    bubblewrap.why_not_apart = lambda: "a test"
process = VllmProcess(Command(argv, environment, Path(directory)))
process.answers(seconds=300, is_unwanted=lambda: False)
print("ready", flush=True)
time.sleep(3600)
"""


def test_the_server_ends_with_a_killed_trainer(misbehaving_vllm, isolation):
    launch = misbehaving_vllm()
    order = json.dumps([launch.argv, dict(launch.environment), str(launch.directory), isolation])
    argv = [sys.executable, "-c", PARENT_SCRIPT, order]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT, start_new_session=True) as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == b"ready\n"
        pids_before = list_processes(launch.directory)
        assert len(pids_before) >= 2
        trainer.send_signal(signal.SIGKILL)
    wait_for(lambda: not any(map(is_alive, pids_before)), "all of it is gone")


NETWORK_SCRIPT = """
import os, socket, sys
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
    print("reached")
except OSError as error:
    print(type(error).__name__)
print(sorted(name for name in os.listdir("/proc") if name.isdigit()))
"""


def test_an_isolated_process_has_no_network_and_sees_no_other_process():
    if reason := bubblewrap.isolation_unavailable_reason():
        pytest.skip(reason)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        argv = bubblewrap.isolated_command([sys.executable, "-c", NETWORK_SCRIPT, port])
        lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines == ["ConnectionRefusedError", "['1', '2']"]
