"""Tests of obstacles on a new machine, each reported in one sentence with a remedy."""

import os
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from backend.storage.migrate import upgrade
from tests.ports import free_port

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parent.parent.parent


def command(name, **settings):
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        **{key: str(setting) for key, setting in settings.items()},
    }
    argv = [sys.executable, "-m", "backend.service", name]
    return subprocess.run(
        argv, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


def complaint(result):
    """Return the only error line of a command that did not start."""
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0].strip()


def test_a_taken_port_is_reported_with_a_free_one(state_dir):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        message = complaint(command("up", STATE_DIR=state_dir, PORT=port))
    assert message.startswith(f"port {port} on 127.0.0.1 cannot be used (Address already in use)")
    assert "e.g. PORT=" in message


def test_a_database_that_cannot_be_opened_is_reported_without_its_password(state_dir):
    url = "postgresql://me:secret@127.0.0.1:1/lab"
    message = complaint(command("up", STATE_DIR=state_dir, DATABASE_URL=url, PORT=free_port()))
    assert message.startswith("cannot open the database postgresql://me:***@127.0.0.1:1/lab")
    assert "secret" not in message


def test_a_database_of_a_newer_version_is_reported_with_a_remedy(state_dir):
    url = f"sqlite:///{state_dir / 'grpolab.db'}"
    upgrade(url)
    with closing(sqlite3.connect(state_dir / "grpolab.db")) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    message = complaint(command("up", STATE_DIR=state_dir, PORT=free_port()))
    assert message.startswith("the database has schema 9999, which is newer than this version knows")
    assert message.endswith(
        "start the newer version again, or use another STATE_DIR or DATABASE_URL; nothing was changed"
    )


def test_listening_on_the_network_without_a_token_is_refused(state_dir):
    message = complaint(command("up", STATE_DIR=state_dir, HOST="0.0.0.0"))
    assert message.startswith("HOST=0.0.0.0 would open the service to the network")
    assert "GRPOLAB_TOKEN=" in message
