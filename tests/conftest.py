"""Fixtures for every test.

settings      Settings with a private state directory (short, so that unix sockets fit)
sqlite_url    a private migrated SQLite database
postgres_url  the same on a real Postgres: a cluster per session, a database per process, emptied
database      Database(url, engine, sessions), once on SQLite and once on Postgres (see `both_databases`)
session       a Session on `database`
valkey_url    broker URL of a private Redis-compatible server
s3            address of an empty bucket on an S3 server, for ARTIFACTS_URL
warm          socket of the process that forks trainers, see tests/faults/warm.py
chromium      path of a Chromium
client        a client of a service on SQLite, logged in as the operator
viewer        the same as a viewer
stranger      the same without a token

tests/trained_runs.py adds fixtures for runs that train in the test process.

If a machine lacks a requirement, its tests are skipped with a notice at the end, or fail with CI=true.
"""

import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.request import Request, urlopen
from uuid import uuid4

import psycopg
import pytest
from filelock import FileLock
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from sqlalchemy import Engine, make_url
from sqlalchemy.orm import Session

from backend.base.settings import Settings
from backend.service.process.gc_freeze import freeze_gc
from backend.storage import rollout_words
from backend.storage.engine import Sessions, open_engine, open_sessions
from backend.storage.migrate import upgrade
from backend.storage.models import Base
from tests import servers
from tests.faults.processes import warm_parent

# Two test processes share two cores. Torch reads this when it is first imported.
os.environ.update(OMP_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false", HF_HUB_OFFLINE="1")
# The developer's own installation must not affect the tests.
for _name in Settings.model_fields:
    os.environ.pop(_name.upper(), None)

# Durations must not fail a test, because generation is slow on a busy machine.
NO_DEADLINE = hypothesis_settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.register_profile("gate", NO_DEADLINE, max_examples=20)
hypothesis_settings.register_profile("nightly", NO_DEADLINE, max_examples=100)

pytest_plugins = ["tests.trained_runs"]

SHARED_VARIABLE = "GRPOLAB_TEST_SHARED"
"""Environment variable with the directory that all processes of a test session share."""

Found = TypeVar("Found")

MISSING_PREFIX = "not on this machine: "


class Database(NamedTuple):
    """A migrated, empty database."""

    url: str
    engine: Engine
    sessions: Sessions


def require(find: Callable[[], Found]) -> Found:
    """Return the result of `find`, or skip with a notice in the summary, or fail in CI."""
    try:
        return find()
    except servers.Missing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{MISSING_PREFIX}{missing}")
        pytest.skip(f"{MISSING_PREFIX}{missing}")


def pytest_configure(config: pytest.Config) -> None:
    hypothesis_settings.load_profile("gate" if "not nightly" in config.option.markexpr else "nightly")
    if not hasattr(config, "workerinput"):
        signal.signal(
            signal.SIGTERM, signal.default_int_handler
        )  # a time limit must not leave servers running
        shared_directory = Path(tempfile.mkdtemp(prefix="grpolab-tests-"))
        shared_directory.chmod(0o711)  # Postgres may run as nobody
        os.environ[SHARED_VARIABLE] = str(shared_directory)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests on Postgres only nightly, except those marked `both_databases`."""
    for item in items:
        params = getattr(getattr(item, "callspec", None), "params", {})
        if params.get("database") == "postgres" and not item.get_closest_marker("both_databases"):
            item.add_marker(pytest.mark.nightly)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Exclude all imported objects from garbage collection."""
    with freeze_gc():
        return (yield)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shared_directory = Path(os.environ[SHARED_VARIABLE])
        for note in shared_directory.glob("*.json"):
            if pid := json.loads(note.read_text())["pid"]:
                servers.shut_down(pid)
        shutil.rmtree(shared_directory, ignore_errors=True)
    servers.forget_servers()


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: Any) -> None:
    skips = terminalreporter.stats.get("skipped", [])
    reasons = [report.longrepr[2] for report in skips if isinstance(report.longrepr, tuple)]
    missing = [reason.split(MISSING_PREFIX, 1)[1] for reason in reasons if MISSING_PREFIX in reason]
    if missing:
        sentence = "; ".join(sorted(set(missing)))
        terminalreporter.write_line(
            f"!!! {len(missing)} TESTS SKIPPED, NOT ON THIS MACHINE: {sentence}", red=True
        )


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    """Restore the umask, which commands such as `grpolab backup` restrict in the process of the tests."""
    umask = os.umask(0o077)
    os.umask(umask)
    yield
    os.umask(umask)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the directory that all processes of this session share."""
    return Path(os.environ[SHARED_VARIABLE])


@pytest.fixture
def state_dir() -> Iterator[Path]:
    """Yield a private directory with a short path, because a unix socket's path has at most 107 bytes."""
    directory = Path(tempfile.mkdtemp(prefix="gl-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def settings(state_dir: Path) -> Settings:
    return Settings(
        state_dir=state_dir,
        models_dir=state_dir / "models",
        datasets_dir=state_dir / "datasets",
        grpolab_token="secret",
        grpolab_viewer_token="only-looking",
        writes_per_second=0,
        streams_per_token=0,
        reads_per_token=0,
    )


@pytest.fixture
def sqlite_url(shared: Path, tmp_path: Path) -> str:
    template = shared / "template.sqlite"
    with FileLock(shared / "sqlite.lock"):
        if not template.exists():
            growing_file = shared / "growing.sqlite"
            upgrade(f"sqlite:///{growing_file}")
            growing_file.rename(template)
    shutil.copyfile(template, tmp_path / "grpolab.db")
    return f"sqlite:///{tmp_path / 'grpolab.db'}"


@pytest.fixture(scope="session")
def postgres(shared: Path) -> str:
    """Return the URL of the session's Postgres."""
    note = shared / "postgres.json"
    with FileLock(shared / "postgres.lock"):
        if not note.exists():
            server = require(lambda: _postgres_server(shared / "pg"))
            note.write_text(json.dumps(server._asdict()))
    return str(json.loads(note.read_text())["url"])


@pytest.fixture(scope="session")
def postgres_database(postgres: str) -> Iterator[str]:
    """Yield a migrated database of this test process, because a database per test would be too slow."""
    name = f"t_{uuid4().hex}"
    url = _make_database(postgres, name)
    yield url
    _on_postgres(postgres, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def postgres_url(postgres: str, postgres_database: str) -> Iterator[str]:
    initial_schema = _read_schema(postgres_database)
    yield postgres_database
    _disconnect_all(postgres_database)
    if _read_schema(postgres_database) == initial_schema:
        _empty(postgres_database)
    else:  # a test of migrations
        name = str(make_url(postgres_database).database)
        _on_postgres(postgres, f"DROP DATABASE {name} WITH (FORCE)")
        _make_database(postgres, name)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    url = request.getfixturevalue(f"{request.param}_url")
    engine = open_engine(url)
    yield Database(url, engine, open_sessions(engine))
    engine.dispose()


@pytest.fixture
def session(database: Database) -> Iterator[Session]:
    with database.sessions() as session:
        yield session


@pytest.fixture
def valkey_url(state_dir: Path) -> Iterator[str]:
    if url := os.environ.get("TEST_REDIS_URL"):
        yield url
        return
    server = require(lambda: servers.start_redis(state_dir / "redis"))
    yield server.url
    servers.shut_down(server.pid)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as directory:
        server = servers.start_s3(Path(directory))
        yield server.url
        servers.shut_down(server.pid)


@pytest.fixture
def s3(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "lab")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "made-up-secret")
    bucket = f"lab-{uuid4().hex}"
    urlopen(Request(f"{s3_server}/{bucket}", method="PUT", data=b"")).close()  # noqa: S310 - loopback
    return f"s3://{bucket}/grpolab"


@pytest.fixture(scope="session")
def warm() -> Iterator[Path]:
    with warm_parent() as socket:
        yield socket


@pytest.fixture(scope="session")
def chromium() -> str:
    return require(servers.find_chromium)


@pytest.fixture
def client(sqlite_url: str, settings: Settings) -> Iterator[Any]:
    with _client_of_service(settings, sqlite_url, settings.grpolab_token) as client:
        yield client


@pytest.fixture
def viewer(sqlite_url: str, settings: Settings) -> Iterator[Any]:
    with _client_of_service(settings, sqlite_url, settings.grpolab_viewer_token) as client:
        yield client


@pytest.fixture
def stranger(sqlite_url: str, settings: Settings) -> Iterator[Any]:
    with _client_of_service(settings, sqlite_url, "") as client:
        yield client


def _client_of_service(settings: Settings, url: str, token: str) -> AbstractContextManager[Any]:
    from tests.api_client import client_of_service  # most tests need no service, whose import takes long

    return client_of_service(settings, url, token=token)


def _postgres_server(directory: Path) -> servers.Server:
    if url := os.environ.get("TEST_POSTGRES_URL"):
        return servers.Server(url, pid=0)
    return servers.start_postgres(directory)


def _make_database(server: str, name: str) -> str:
    _on_postgres(server, f"CREATE DATABASE {name}")
    url = make_url(server).set(database=name).render_as_string(hide_password=False)
    upgrade(url)
    return url


def _read_schema(url: str) -> Any:
    """Return every table with its columns and types."""
    columns = """
        SELECT c.relname, a.attname, a.atttypid, a.attnotnull, a.attisdropped
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'i') AND a.attnum > 0
        ORDER BY 1, 2"""
    return _on_postgres(url, columns)


def _disconnect_all(url: str) -> None:
    other_sessions = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    _on_postgres(url, f"SELECT pg_terminate_backend(pid) {other_sessions}")


def _empty(url: str) -> None:
    """Delete all rows without checks of foreign keys. TRUNCATE would rewrite every table's files."""
    tables = [rollout_words.INDEX_TABLE, *Base.metadata.tables]
    deletes = [f"DELETE FROM {name}" for name in tables]  # noqa: S608
    _on_postgres(url, "; ".join(["SET session_replication_role = replica", *deletes]))


def _on_postgres(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []
