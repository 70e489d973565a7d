"""Tests that a hostile reward plugin reaches nothing on its machine when a trainer runs it.

Each attack is harmless if it succeeds, as it does in the control test: files are opened for writing
without a write, and signals are 0."""

import socket
from contextlib import closing
from pathlib import Path

import pytest

from backend.base.sandbox.layers import missing_layers
from backend.config.rewards import PluginReward
from worker.prompt import Prompt
from worker.rewards.plugins import PluginTerm

SECRET_TEXT = "an operator's token, planted"

ATTACK_SOURCE = """
import glob, os, socket, subprocess, sys
from pathlib import Path

def read(path):
    return Path(path).read_bytes().decode(errors="replace")

def memory_of(pid):
    with open(f"/proc/{pid}/mem", "rb") as memory:
        return memory.read(1)

def connect(address):
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as one:
        one.settimeout(3)
        one.connect(address)
    return "connected"

def attacks(text):
    token, port, own_socket = text.split("|")
    yield "token", lambda: read(token)
    yield "state", lambda: os.listdir(os.path.dirname(token))
    yield "home", lambda: os.listdir(os.path.expanduser("~root"))
    yield "environment", lambda: os.environ["GRPOLAB_TOKEN"]
    yield "database", lambda: os.environ["DATABASE_URL"]
    for pid in (os.getppid(), 1, 2, os.getpid()):
        yield f"environment of {pid}", lambda pid=pid: read(f"/proc/{pid}/environ")
        yield f"memory of {pid}", lambda pid=pid: memory_of(pid)
    yield "network", lambda: connect(("127.0.0.1", int(port)))
    yield "socket", lambda: connect(own_socket)
    yield "program", lambda: subprocess.run(["/bin/sh", "-c", "true"], check=True)
    yield "fork", lambda: os.fork() or os._exit(0)
    yield "signal", lambda: os.kill(os.getppid(), 0)
    yield "code", lambda: open(sys.modules["worker.rewards"].__file__, "r+b").close()
    yield "packages", lambda: open(glob.__file__, "r+b").close()

def greedy(prompt, text):
    reached = []
    for name, work in attacks(text):
        try:
            work()
        except (OSError, KeyError):
            continue
        reached.append(name)
    if reached:
        raise RuntimeError(f"reached: {reached}")
    return 1.0

seen = []

def remembering(prompt, text):
    seen.append(text)
    left = [entry for entry in os.listdir(os.environ["TMPDIR"])]
    Path(os.environ["TMPDIR"], "note").write_text(text)
    return float(len(seen) + 10 * len(left))
"""

pytestmark = pytest.mark.skipif(bool(missing_layers()), reason="a layer of the sandbox is missing here")


@pytest.fixture
def attack(tmp_path: Path, monkeypatch):
    """The plugin, installed in its own directory next to a token."""
    package, state = tmp_path / "package", tmp_path / "state"
    info = package / "greedy-1.0.dist-info"
    info.mkdir(parents=True)
    state.mkdir()
    (package / "greedy.py").write_text(ATTACK_SOURCE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: greedy\nVersion: 1.0\n")
    points = "greedy = greedy:greedy\nremembering = greedy:remembering\n"
    (info / "entry_points.txt").write_text(f"[grpolab.rewards]\n{points}")
    (state / "token").write_text(SECRET_TEXT)
    for name in ("GRPOLAB_TOKEN", "HF_TOKEN"):
        monkeypatch.setenv(name, SECRET_TEXT)
    monkeypatch.setenv("DATABASE_URL", f"sqlite:///{state}/grpolab.db")
    monkeypatch.setenv("STATE_DIR", str(state))
    monkeypatch.syspath_prepend(str(package))
    monkeypatch.setenv("PYTHONPATH", str(package))
    return str(state / "token")


def rewards(name: str, *texts: str) -> tuple[list[float | None], str]:
    prompt = Prompt("p", "?", "1", "sums")
    with closing(PluginTerm(PluginReward(entry_point=name, timeout_seconds=60))) as term:
        return term.rewards([(prompt, text) for text in texts]), term.last_failure


def test_a_hostile_plugin_reaches_neither_token_nor_parent_nor_network(attack, listener, unix_listener):
    assert rewards("greedy", f"{attack}|{listener}|{unix_listener}") == ([1.0], "")


def test_a_plugin_keeps_no_state_between_calls(attack):
    assert rewards("remembering", "a", "b", "c") == ([1.0, 1.0, 1.0], "")


def test_without_the_sandbox_the_same_attack_succeeds(attack, monkeypatch, listener, unix_listener, capfd):
    """If the attack failed without the sandbox, the test above would prove nothing."""
    monkeypatch.setattr("backend.base.sandbox.process.layer_names", lambda: {"on": []})
    monkeypatch.setattr("backend.base.sandbox.bubblewrap.unavailable_reason", lambda: "switched off")
    scores, failure = rewards("greedy", f"{attack}|{listener}|{unix_listener}")
    assert scores == [None]
    for name in ("token", "state", "program", "network", "socket", "fork", "signal", "code", "packages"):
        assert f"'{name}'" in failure


@pytest.fixture
def listener():
    """The port of a local service."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def unix_listener(state_dir):
    """The path of a unix socket of a local service, like that of vLLM next to the trainer."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(state_dir / "socket"))
        server.listen()
        yield state_dir / "socket"
