"""`make up` as a user meets it: one process tree that starts, ends, and comes back after any death."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from backend.preflight import free_port

ROOT = Path(__file__).parent.parent.parent


class Lab:
    """A launcher, its output and the processes below it."""

    def __init__(self, state_dir, command="up", port=None):
        self.state_dir, self.port = state_dir, port or free_port()
        self.output = state_dir / "terminal.txt"
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "STATE_DIR": str(state_dir),
            "PORT": str(self.port),
            "GRPOLAB_TOKEN": "a-token-for-tests",
        }
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "backend.cli", command],
                env=environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def said(self):
        return self.output.read_text()

    def wait_until_up(self):
        wait_for(lambda: "Ctrl-C stops everything" in self.said() or self.process.poll() is not None)
        assert self.process.poll() is None, self.said()
        return self

    def family(self):
        """Every process below the launcher."""
        return psutil.Process(self.process.pid).children(recursive=True)

    def child(self, word):
        """The process below the launcher whose command line has this word."""
        return next(process for process in self.family() if word in " ".join(process.cmdline()))

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as response:
            return response.status

    def kill_all(self):
        if self.process.poll() is None:
            family = self.family()
            self.process.kill()
            for process in family:
                kill(process)
        self.process.wait()


def kill(process):
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return found


def are_gone(processes):
    return lambda: (
        not [
            process
            for process in processes
            if process.is_running() and process.status() != psutil.STATUS_ZOMBIE
        ]
    )


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.fixture
def start(state_dir):
    labs = []

    def start(**options):
        labs.append(Lab(state_dir, **options))
        return labs[-1]

    yield start
    for lab in labs:
        lab.kill_all()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_everything_and_leaves_nothing(start, state_dir, number):
    lab = start().wait_until_up()
    assert lab.get("/healthz") == 200
    family = lab.family()
    assert len(family) >= 3
    lab.process.send_signal(number)
    assert lab.process.wait(30) == 0, lab.said()
    assert are_gone(family)()
    assert is_free(lab.port)
    assert (state_dir / "run" / "up.lock").read_text() == ""


def test_everything_it_writes_is_private(start, state_dir):
    start().wait_until_up()
    readable = [
        path for path in state_dir.rglob("*") if path.lstat().st_mode & 0o077 and not path.is_symlink()
    ]
    assert [path for path in readable if path.name != "terminal.txt"] == []


def test_the_link_logs_in_once(start):
    lab = start().wait_until_up()
    link = re.search(r"Open +(http\S+)", lab.said())[1]
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    assert opener.open(link, timeout=5).status == 200
    stranger = urllib.request.build_opener()
    with pytest.raises(urllib.error.HTTPError):
        stranger.open(link, timeout=5)


def test_a_second_start_says_where_the_first_one_runs(start):
    lab = start().wait_until_up()
    other = start(port=free_port())
    assert other.process.wait(30) == 0
    assert f"already runs here: http://127.0.0.1:{lab.port} (process {lab.process.pid})" in other.said()
    assert lab.get("/healthz") == 200


def test_after_a_kill_nothing_stays_and_the_next_start_works(start):
    lab = start().wait_until_up()
    family = lab.family()
    lab.process.kill()
    lab.process.wait()
    again = start(port=lab.port).wait_until_up()
    wait_for(are_gone(family), seconds=10)
    assert again.get("/healthz") == 200


def test_after_the_death_of_every_process_the_next_start_works(start):
    lab = start().wait_until_up()
    lab.kill_all()
    again = start(port=lab.port).wait_until_up()
    assert again.get("/healthz") == 200


@pytest.mark.parametrize("word", ["backend.cli serve", "worker.app", "valkey-server"])
def test_a_program_that_dies_is_started_again(start, word):
    lab = start().wait_until_up()
    victim = lab.child(word)
    victim.kill()
    wait_for(lambda: any(word in " ".join(p.cmdline()) for p in lab.family() if p.pid != victim.pid))
    assert "ended by itself" in lab.said()
    wait_for(lambda: answers(lab))


def answers(lab):
    try:
        return lab.get("/healthz") == 200
    except OSError:
        return False
