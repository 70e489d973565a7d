"""Obstacles on a new machine, each reported in one sentence with the remedy."""

import os
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from backend.base.settings import Settings
from backend.runs.workers.devices import Gpu, default_cpu_slots, visible_gpus
from backend.service import cli
from backend.service.doctor import examine
from backend.service.process.instance_lock import hold_instance
from backend.service.process.preflight import is_loopback
from backend.service.process.terminal import link_command, tunnel_hint
from backend.storage.migrate import upgrade
from tests.ports import free_port

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parent.parent.parent


def command(name, **settings):
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        **{key: str(value) for key, value in settings.items()},
    }
    argv = [sys.executable, "-m", "backend.service", name]
    return subprocess.run(
        argv, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


def complaint(result):
    """The only line of complaint of a command that did not start."""
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0].strip()


def test_a_port_that_is_taken_is_named_with_a_free_one(state_dir):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        message = complaint(command("up", STATE_DIR=state_dir, PORT=port))
    assert message.startswith(f"port {port} on 127.0.0.1 cannot be used (Address already in use)")
    assert "e.g. PORT=" in message


def test_a_state_directory_that_cannot_be_written_is_named():
    message = complaint(command("up", STATE_DIR="/proc/grpolab"))
    assert message.startswith("cannot write to the state directory /proc/grpolab")
    assert "STATE_DIR=" in message


def test_a_database_that_does_not_open_is_named_without_its_password(state_dir):
    url = "postgresql://me:secret@127.0.0.1:1/lab"
    message = complaint(command("up", STATE_DIR=state_dir, DATABASE_URL=url, PORT=free_port()))
    assert message.startswith("cannot open the database postgresql://me:***@127.0.0.1:1/lab")
    assert "secret" not in message


def test_a_sqlite_file_in_a_missing_directory_is_named(state_dir):
    message = complaint(
        command("up", STATE_DIR=state_dir, DATABASE_URL="sqlite:////nowhere/x.db", PORT=free_port())
    )
    assert message == "the directory of the database does not exist: /nowhere"


def test_a_database_of_a_newer_version_is_named_with_what_to_do(state_dir):
    url = f"sqlite:///{state_dir / 'grpolab.db'}"
    upgrade(url)
    with closing(sqlite3.connect(state_dir / "grpolab.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    message = complaint(command("up", STATE_DIR=state_dir, PORT=free_port()))
    assert message.startswith("the database has schema 9999, which is newer than this version knows")
    assert message.endswith(
        "start the newer version again, or use another STATE_DIR or DATABASE_URL; nothing was changed"
    )


def test_a_setting_that_makes_no_sense_is_named_with_its_value(state_dir):
    message = complaint(command("up", STATE_DIR=state_dir, PORT="eighty"))
    assert message.startswith("PORT=eighty: ")


def test_listening_to_the_network_without_a_token_is_refused(state_dir):
    message = complaint(command("up", STATE_DIR=state_dir, HOST="0.0.0.0"))
    assert message.startswith("HOST=0.0.0.0 would open the service to the network")
    assert "GRPOLAB_TOKEN=" in message


@pytest.mark.parametrize(("host", "expected"), [("127.0.0.1", True), ("::1", True), ("[::1]", True)])
def test_loopback_addresses_need_no_token(host, expected):
    assert is_loopback(host) is expected
    assert is_loopback("localhost")
    assert not is_loopback("0.0.0.0")
    assert not is_loopback("my-server")


def test_without_a_screen_the_way_over_ssh_is_shown(monkeypatch):
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    settings = Settings(port=8400)
    assert tunnel_hint(settings) == "ssh -N -L 8400:127.0.0.1:8400 you@this-machine"
    monkeypatch.setattr("getpass.getuser", lambda: "ada")
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 5000 10.0.0.2 22")
    assert tunnel_hint(settings) == "ssh -N -L 8400:127.0.0.1:8400 ada@10.0.0.2"


def test_the_command_for_a_new_link_names_the_settings_that_differ(tmp_path, monkeypatch):
    monkeypatch.delenv("PORT", raising=False)
    monkeypatch.delenv("STATE_DIR", raising=False)
    assert link_command(Settings()) == "make link"
    state_dir = tmp_path / "my state"
    assert (
        link_command(Settings(port=9000, state_dir=state_dir))
        == f"make link PORT=9000 STATE_DIR='{state_dir}'"
    )


def test_a_link_leads_to_where_the_running_service_listens(state_dir, capsys):
    settings = Settings(state_dir=state_dir)
    settings.run_dir.mkdir(parents=True, exist_ok=True)
    with hold_instance(settings, "http://127.0.0.1:9123"):
        assert cli.link(settings) == 0
    output = capsys.readouterr().out
    assert "Open  http://127.0.0.1:9123/?token=" in output
    assert "-L 9123:127.0.0.1:9123" in output
    assert cli.link(settings) == 0
    assert f"Open  http://127.0.0.1:{settings.port}/?token=" in capsys.readouterr().out


def test_the_doctor_finds_a_healthy_machine_healthy(state_dir):
    findings = examine(Settings(state_dir=state_dir, port=free_port()))
    assert {finding.what for finding in findings} >= {"python", "port", "database", "broker", "torch"}
    assert [finding for finding in findings if not finding.is_good] == []


def test_the_doctor_sees_a_gpu_that_the_cpu_build_cannot_use(state_dir, monkeypatch):
    monkeypatch.setattr("backend.service.doctor.machine.find_gpus", lambda: [Gpu("GPU-1", "NVIDIA H100")])
    monkeypatch.setattr("backend.service.doctor.machine.torch_build", lambda: "cpu")
    findings = {finding.what: finding for finding in examine(Settings(state_dir=state_dir, port=free_port()))}
    assert not findings["torch"].is_good
    assert "NVIDIA H100" in findings["torch"].text


def test_visible_gpus_follow_the_rules_of_cuda():
    first, second = Gpu("GPU-aaaa", "A"), Gpu("GPU-bbbb", "B")
    gpus = [first, second]
    assert visible_gpus(gpus, None) == [first, second]
    assert visible_gpus(gpus, "1,0") == [second, first]
    assert visible_gpus(gpus, "GPU-bb") == [second]
    assert visible_gpus(gpus, "") == []
    assert visible_gpus(gpus, "-1") == []
    assert visible_gpus(gpus, "0,7,1") == [first]


def test_a_cpu_machine_trains_one_run_per_core_as_far_as_memory_reaches():
    assert default_cpu_slots(1, 8_000_000_000) == 1
    assert default_cpu_slots(2, 8_000_000_000) == 2
    assert default_cpu_slots(64, 640_000_000_000) == 4
    assert default_cpu_slots(8, 3_500_000_000) == 2
    assert default_cpu_slots(2, 500_000_000) == 1
