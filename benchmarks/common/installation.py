"""A state directory and a database for a benchmark, which can also be made cold."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine

from tests import servers


@dataclass(slots=True)
class Installation:
    """Where a service keeps everything; it is started and stopped by its user."""

    root: Path
    url: str
    """Of the database."""
    server: servers.Server | None = None
    """Postgres, if that is the database."""

    @property
    def state(self) -> Path:
        """The state directory."""
        return self.root / "state"

    def cool(self) -> None:
        """Drop its files from the system's cache, and Postgres' own with a new start.

        No service may be running. What lies below the system, as the cache of a virtual disk, stays warm.
        """
        if self.server is not None:
            servers.stop(self.server.pid)
        for path in self.root.rglob("*"):
            if path.is_file():
                _drop(path)
        if self.server is not None:
            self.server = servers.serve_postgres(self.root / "pg", durable=True)


@contextmanager
def installation(database: str, cache: Path | None = None, name: str = "") -> Iterator[Installation]:
    """A new one with `sqlite` or `postgres`, or, in a cache, as it was left."""
    with tempfile.TemporaryDirectory(prefix="grpolab-bench-") as directory:
        root = Path(directory) if cache is None else cache.resolve() / f"{database}{name}"
        (root / "state").mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in (root,) if cache is None else (root, root.parent):
            each.chmod(each.stat().st_mode | 0o011)  # Postgres may run as nobody
        if database == "sqlite":
            yield Installation(root, f"sqlite:///{root}/state/grpolab.db")
            return
        is_there = (root / "pg" / "data").is_dir()
        start = servers.serve_postgres if is_there else servers.start_postgres
        server = start(root / "pg", durable=True)
        found = Installation(root, server.url, server)
        try:
            yield found
        finally:
            servers.stop(found.server.pid if found.server else server.pid)


def vacuum(engine: Engine) -> None:
    """On Postgres, do what autovacuum does within minutes of many new rows: a count then reads an index."""
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM (ANALYZE)")


def _drop(path: Path) -> None:
    """Pages that are not on the disk yet cannot be dropped, so they are written first."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
