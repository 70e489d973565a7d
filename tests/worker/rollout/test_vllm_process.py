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
KEY = "the-key-of-this-attempt"


@pytest.fixture
def told(state_dir, monkeypatch):
    """A function that configures how the fake vLLM misbehaves."""
    add_secrets(KEY)
    directory = state_dir / "vllm"
    directory.mkdir(mode=0o700)

    def told(how=""):
        program = fake_vllm.install(state_dir)
        argv = [program, "-m", "vllm.entrypoints.openai.api_server", "--served-model-name", "policy"]
        variables = {"VLLM_API_KEY": KEY, "VLLM_RPC_BASE_PATH": str(directory), fake_vllm.VARIABLE: how}
        return Command([*argv, "--uds", str(directory / SOCKET)], variables, directory)

    return told


@pytest.fixture(params=["apart", "guarded"])
def isolation(request, monkeypatch):
    """The isolation level of the server process."""
    if request.param == "guarded":
        monkeypatch.setattr(bubblewrap, "isolation_unavailable_reason", lambda: "a test")
    elif why := bubblewrap.isolation_unavailable_reason():
        pytest.skip(why)
    return request.param


def processes_of(directory):
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


def test_it_answers_at_a_socket_of_its_own_and_leaves_no_process(told, isolation):
    launch = told()
    process = VllmProcess(launch)
    assert process.answers(seconds=300, is_unwanted=never)
    assert process.is_apart == (isolation == "apart")
    assert stat.S_IMODE(launch.socket.stat().st_mode) & 0o077 == 0
    assert len(processes_of(launch.directory)) >= 2
    process.kill()
    assert not process.is_running()
    wait_for(lambda: not processes_of(launch.directory), "all of it is gone")


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
def test_a_start_that_fails_says_why(told, how, phrase):
    launch = told(how)
    process = VllmProcess(launch)
    with pytest.raises(EngineFailed, match=phrase):
        process.answers(seconds=2 if how == "never" else 300, is_unwanted=never)
    assert not process.is_running()
    wait_for(lambda: not processes_of(launch.directory), "all of it is gone")


def test_what_it_says_is_part_of_the_runs_log_without_its_key(told, caplog):
    with caplog.at_level(logging.INFO), pytest.raises(EngineFailed):
        VllmProcess(told("dies")).answers(seconds=300, is_unwanted=never)
    [line] = [record for record in caplog.records if "head_dim 16" in record.getMessage()]
    assert line.name.partition(".")[0] in APPLICATION_LOGGERS  # later versions only report warnings
    assert KEY not in caplog.text


PARENT = """
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


def test_it_ends_with_a_trainer_that_is_killed(told, isolation):
    launch = told()
    order = json.dumps([launch.argv, dict(launch.environment), str(launch.directory), isolation])
    argv = [sys.executable, "-c", PARENT, order]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=ROOT, start_new_session=True) as trainer:
        assert trainer.stdout is not None
        assert trainer.stdout.readline() == b"ready\n"
        before = processes_of(launch.directory)
        assert len(before) >= 2
        trainer.send_signal(signal.SIGKILL)
    wait_for(lambda: not any(map(is_alive, before)), "all of it is gone")


REACHING = """
import os, socket, sys
try:
    socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5)
    print("reached")
except OSError as error:
    print(type(error).__name__)
print(sorted(name for name in os.listdir("/proc") if name.isdigit()))
"""


def test_what_runs_apart_has_no_port_of_the_machine_and_sees_no_process_of_it():
    if why := bubblewrap.isolation_unavailable_reason():
        pytest.skip(why)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        argv = bubblewrap.isolated_command([sys.executable, "-c", REACHING, port])
        lines = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines == ["ConnectionRefusedError", "['1', '2']"]
