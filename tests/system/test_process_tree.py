"""Tests of `make up` as one process tree that starts, ends, and recovers from any death."""

import io
import re
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path

import httpx
import pytest

from backend.service.process.launcher import ChildProcess, Launcher
from backend.service.process.terminal import Terminal
from tests.system.lab import LauncherProgram, are_gone, command_lines
from tests.waiting import wait_for


def is_free(port):
    with socket.socket() as test_socket:
        test_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        return test_socket.connect_ex(("127.0.0.1", port)) != 0


@pytest.fixture
def start(state_dir):
    labs = []

    def start(**options):
        labs.append(LauncherProgram(state_dir, **options))
        return labs[-1]

    yield start
    for launcher in labs:
        launcher.kill_all()


def assert_ends(launcher, number):
    """Check that the signal ends everything and leaves nothing."""
    assert launcher.client.is_alive()
    family = launcher.family()
    assert len(family) >= 3
    launcher.process.send_signal(number)
    assert launcher.process.wait(120) == 0, launcher.output_text()
    wait_for(are_gone(family))
    assert is_free(launcher.port)
    assert (launcher.state_dir / "run" / "up.lock").read_text() == ""


def test_a_signal_ends_everything_and_leaves_nothing(start):
    assert_ends(start().wait_until_up(), signal.SIGTERM)


@pytest.mark.nightly
def test_after_a_kill_no_process_remains_and_the_next_start_works(start):
    first_launcher = start().wait_until_up()
    family = first_launcher.family()
    first_launcher.process.kill()
    first_launcher.process.wait()
    second_launcher = start(port=first_launcher.port).wait_until_up()
    wait_for(are_gone(family))
    assert_ends(second_launcher, signal.SIGHUP)


def test_after_the_death_of_every_process_the_next_start_works(start):
    first_launcher = start().wait_until_up()
    first_launcher.kill_all()
    assert_ends(start(port=first_launcher.port).wait_until_up(), signal.SIGINT)


def test_a_second_signal_ends_the_wait_for_a_checkpoint(settings, tmp_path):
    program = """
import signal
def wait_for_more(*_):
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    print("asked", flush=True)
signal.signal(signal.SIGTERM, wait_for_more)
print("ready", flush=True)
while True:
    signal.pause()
"""
    argv = (sys.executable, "-c", program)
    output = io.StringIO()
    launcher = Launcher(settings, Terminal(output))
    child = ChildProcess("worker", argv, {}, tmp_path / "worker.log", grace_seconds=1e9)
    child.start()
    wait_for(lambda: "ready" in child.log.read_text())

    def ask_again():
        wait_for(lambda: "asked" in child.log.read_text())
        launcher.signals = 2

    threading.Thread(target=ask_again).start()
    launcher.children.append(child)
    launcher.signals = 1
    launcher.stop()
    child.process.stdin.close()
    assert not child.is_running
    assert "stopped" in output.getvalue()


@pytest.fixture(scope="module")
def running_launcher():
    """An installation for several tests, which is running again after each of them."""
    with tempfile.TemporaryDirectory(prefix="gl-", ignore_cleanup_errors=True) as directory:
        started_launcher = LauncherProgram(Path(directory))
        try:
            yield started_launcher.wait_until_up()
        finally:
            started_launcher.kill_all()


@pytest.mark.nightly
def test_all_files_are_private(running_launcher):
    readable = [
        path
        for path in running_launcher.state_dir.rglob("*")
        if path.lstat().st_mode & 0o077 and not path.is_symlink()
    ]
    assert [path for path in readable if path.name != "terminal.txt"] == []


def test_the_link_logs_in_once(running_launcher):
    (link,) = re.findall(r"Open +(http\S+)", running_launcher.output_text())
    with httpx.Client(follow_redirects=True) as browser:
        assert browser.get(link).status_code == 200
        assert browser.get(f"{running_launcher.client.base}/api/v1/runs").status_code == 200
    assert httpx.get(link, follow_redirects=True).status_code in (401, 403)
    assert httpx.get(f"{running_launcher.client.base}/api/v1/runs").status_code == 401


@pytest.mark.nightly
@pytest.mark.parametrize("phrase", ["backend.service serve", "worker.host.app", "valkey-server"])
def test_a_program_that_dies_is_restarted(running_launcher, phrase):
    restarts = running_launcher.output_text().count("exited unexpectedly")
    victim = running_launcher.child(phrase)
    victim.kill()
    wait_for(
        lambda: any(
            phrase in " ".join(line) for p, line in command_lines(running_launcher.family()) if p != victim
        )
    )
    assert running_launcher.output_text().count("exited unexpectedly") == restarts + 1
    wait_for(running_launcher.client.is_alive)
