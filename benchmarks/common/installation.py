"""A state directory and a database for a benchmark."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Engine

from tests import servers


@dataclass(slots=True)
class Installation:
    """State directory and database of a service, which the user of this class starts and stops."""

    root: Path
    url: str
    """URL of the database."""

    @property
    def state(self) -> Path:
        """State directory of the service."""
        return self.root / "state"


@contextmanager
def installation(database: str, cache: Path | None = None, name: str = "") -> Iterator[Installation]:
    """Create an installation with `sqlite` or `postgres`, or reuse the one in a cache."""
    with tempfile.TemporaryDirectory(prefix="grpolab-bench-") as directory:
        root = Path(directory) if cache is None else cache.resolve() / f"{database}{name}"
        (root / "state").mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (root,) if cache is None else (root, root.parent):
            folder.chmod(folder.stat().st_mode | 0o011)  # Postgres may run as nobody
        if database == "sqlite":
            yield Installation(root, f"sqlite:///{root}/state/grpolab.db")
            return
        is_there = (root / "pg" / "data").is_dir()
        start = servers.serve_postgres if is_there else servers.start_postgres
        server = start(root / "pg", durable=True)
        try:
            yield Installation(root, server.url)
        finally:
            servers.shut_down(server.pid)


def vacuum(engine: Engine) -> None:
    """Vacuum Postgres, as autovacuum does soon after many inserts, so that counts read an index."""
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql("VACUUM (ANALYZE)")
