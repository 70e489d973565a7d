"""Tests that the doctor detects each planted fault of a machine and suggests a fix."""

import os
import socket
import stat
from types import SimpleNamespace

import pytest
from sqlalchemy import text

from backend.base.sandbox import bubblewrap
from backend.base.sandbox.layers import layers
from backend.base.settings import Settings
from backend.service.cli import main
from backend.service.doctor import examine, storage
from backend.storage.engine import open_engine
from backend.storage.migrate import upgrade
from tests.ports import free_port


@pytest.fixture
def healthy(state_dir):
    return Settings(
        state_dir=state_dir / "state",
        models_dir=state_dir / "models",
        datasets_dir=state_dir / "datasets",
        port=free_port(),
    )


def finding_text(settings, subject, level="bad"):
    """Return the text of the finding with this subject and level."""
    texts = [line.text for line in examine(settings) if (line.topic, line.level) == (subject, level)]
    assert texts, [line for line in examine(settings) if line.topic == subject]
    return texts[0]


def settings_with(settings, **changes):
    return Settings(**{**settings.model_dump(), **changes})


def test_a_healthy_machine_has_no_findings(healthy):
    lines = examine(healthy)
    assert [line for line in lines if line.level == "bad"] == []
    assert {line.topic for line in lines} >= {
        *(
            "python",
            "memory",
            "torch",
            "devices",
            "sandbox",
            "state",
            "privacy",
            "disk",
            "speed",
            "sqlite",
            "models",
        ),
        *("datasets", "port", "locks", "broker", "clock", "database", "schema", "skew"),
    }


def test_layers_of_the_sandbox_are_named_and_a_missing_one_is_at_least_a_warning(healthy, monkeypatch):
    assert finding_text(healthy, "sandbox", "ok").startswith(
        "all layers: environment, descriptors, namespaces"
    )
    monkeypatch.setattr(bubblewrap, "unavailable_reason", lambda: "the system does not allow user namespaces")
    layers.cache_clear()
    try:
        assert "no namespaces, which keeps out other processes" in finding_text(healthy, "sandbox", "warn")
        assert "does not allow user namespaces" in finding_text(
            settings_with(healthy, sandbox="required"), "sandbox"
        )
        assert "refused" not in finding_text(healthy, "sandbox", "warn")
        monkeypatch.setattr("backend.base.sandbox.layers._no_landlock", lambda: "the kernel lacks it")
        layers.cache_clear()
        assert "plugins and the tool python are refused" in finding_text(healthy, "sandbox", "warn")
        assert "refused" not in finding_text(settings_with(healthy, sandbox="unconfined"), "sandbox", "warn")
    finally:
        monkeypatch.undo()
        layers.cache_clear()


def test_the_exit_code_shows_if_action_is_needed(healthy, monkeypatch, capsys):
    for name in ("state_dir", "models_dir", "datasets_dir", "port"):
        monkeypatch.setenv(name.upper(), str(getattr(healthy, name)))
    assert main(["doctor"]) == 0
    (healthy.state / "token").write_text("x")
    (healthy.state / "token").chmod(0o644)
    assert main(["doctor"]) == 1
    assert "NO  privacy" in capsys.readouterr().out


def test_a_state_directory_that_cannot_be_written_is_reported(healthy):
    assert "cannot write to the state directory" in finding_text(
        settings_with(healthy, state_dir="/proc/x"), "state"
    )


def test_a_token_that_others_may_read_is_reported(healthy):
    healthy.state.mkdir()
    token = healthy.state / "viewer-token"
    token.write_text("x")
    token.chmod(0o640)
    assert finding_text(healthy, "privacy") == f"others may read {token}: `chmod go= {token}`"
    token.chmod(0o600)
    assert finding_text(healthy, "privacy", "ok")
    if os.getuid() == 0:
        os.chown(token, 65534, 65534)
        assert "is owned by another user" in finding_text(healthy, "privacy")
    assert stat.S_IMODE(healthy.state.stat().st_mode) == 0o700


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "9p", "smb3"])
def test_a_network_file_system_under_sqlite_is_reported(healthy, monkeypatch, kind):
    mounts = [SimpleNamespace(mountpoint="/", fstype="ext4")]
    mounts += [SimpleNamespace(mountpoint=str(healthy.state.parent), fstype=kind)]
    monkeypatch.setattr("psutil.disk_partitions", lambda **_: mounts)
    assert f"network file system ({kind})" in finding_text(healthy, "sqlite")
    assert storage.find_file_system(healthy.state.parent.parent / "elsewhere") == "ext4"


def test_a_taken_port_and_an_open_host_are_reported(healthy):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", healthy.port))
        holder.listen()
        assert "cannot be used" in finding_text(healthy, "port")
    assert "would open the service to the network" in finding_text(
        settings_with(healthy, host="0.0.0.0"), "port"
    )


def test_a_broker_that_does_not_answer_is_reported(healthy):
    url = "redis://:canary-of-the-broker@127.0.0.1:1/0"
    assert finding_text(settings_with(healthy, broker_url=url), "broker", "warn") == (
        "redis://:***@127.0.0.1:1/0 does not answer: start it, or correct BROKER_URL; "
        "until then workers poll for runs every 15 s"
    )


def test_an_unreachable_database_is_reported(healthy):
    unreachable_settings = settings_with(healthy, database_url="postgresql://me:canary@127.0.0.1:1/lab")
    assert "cannot open the database" in finding_text(unreachable_settings, "database")
    assert "canary" not in str(examine(unreachable_settings))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_newer_database_is_reported(healthy, kind, request):
    if kind == "sqlite":
        url = f"sqlite:///{healthy.state.parent / 'other.db'}"
        upgrade(url)
    else:
        url = request.getfixturevalue("postgres_url")
    migrated_settings = settings_with(healthy, database_url=url)
    assert finding_text(migrated_settings, "schema", "ok")
    engine = open_engine(url)
    with engine.begin() as connection:
        schema_version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    try:
        assert "9999, which is newer than this version knows" in finding_text(migrated_settings, "schema")
    finally:
        with engine.begin() as connection:
            connection.execute(
                text("UPDATE alembic_version SET version_num = :before"), {"before": schema_version}
            )
        engine.dispose()


def test_a_damaged_database_is_reported(healthy):
    healthy.state.mkdir()
    (healthy.state / "grpolab.db").write_bytes(b"no database at all" * 100)
    assert "cannot open the database" in finding_text(healthy, "database")
