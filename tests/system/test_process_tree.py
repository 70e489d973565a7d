"""`make up` as a user meets it: one process tree that starts, ends, and comes back after any death."""

import re
import signal
import socket

import httpx
import pytest

from backend.preflight import free_port
from tests.system.lab import Lab, are_gone, wait_for


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
    assert lab.client.is_alive()
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
    (link,) = re.findall(r"Open +(http\S+)", lab.said())
    with httpx.Client(follow_redirects=True) as browser:
        assert browser.get(link).status_code == 200
        assert browser.get(f"{lab.client.base}/api/v1/runs").status_code == 200
    assert httpx.get(link, follow_redirects=True).status_code in (401, 403)
    assert httpx.get(f"{lab.client.base}/api/v1/runs").status_code == 401


def test_a_second_start_says_where_the_first_one_runs(start):
    lab = start().wait_until_up()
    other = start(port=free_port())
    assert other.process.wait(30) == 0
    assert f"already runs here: http://127.0.0.1:{lab.port} (process {lab.process.pid})" in other.said()
    assert lab.client.is_alive()


def test_after_a_kill_nothing_stays_and_the_next_start_works(start):
    lab = start().wait_until_up()
    family = lab.family()
    lab.process.kill()
    lab.process.wait()
    again = start(port=lab.port).wait_until_up()
    wait_for(are_gone(family), seconds=10)
    assert again.client.is_alive()


def test_after_the_death_of_every_process_the_next_start_works(start):
    lab = start().wait_until_up()
    lab.kill_all()
    again = start(port=lab.port).wait_until_up()
    assert again.client.is_alive()


@pytest.mark.parametrize("word", ["backend.cli serve", "worker.app", "valkey-server"])
def test_a_program_that_dies_is_started_again(start, word):
    lab = start().wait_until_up()
    victim = lab.child(word)
    victim.kill()
    wait_for(lambda: any(word in " ".join(p.cmdline()) for p in lab.family() if p.pid != victim.pid))
    assert "ended by itself" in lab.said()
    wait_for(lab.client.is_alive)
