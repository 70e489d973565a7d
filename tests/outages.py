"""Servers that a test can stop and restart."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import psycopg

from backend.storage.migrate import upgrade
from tests import servers
from tests.conftest import require


class Postgres:
    """A private cluster of a test."""

    def __init__(self, directory: Path) -> None:
        server = require(lambda: servers.start_postgres(directory))
        self.directory, self.url, self.pid = directory, server.url, server.pid
        self.is_running, self.is_paused = True, False

    def stop(self) -> None:
        """Shut down."""
        if self.is_running:
            servers.shut_down(self.pid)
        self.is_running = False

    def start(self) -> None:
        """Start again at the same address."""
        self.pid = servers.serve_postgres(self.directory).pid
        self.is_running = True

    def pause(self) -> None:
        """Suspend every process, so that connections stay open without answers."""
        servers.signal_all(self.pid, signal.SIGSTOP)
        self.is_paused = True

    def resume(self) -> None:
        """Continue after a pause."""
        if self.is_paused:
            servers.signal_all(self.pid, signal.SIGCONT)
        self.is_paused = False

    def end_connections(self) -> None:
        """End every connection except our own."""
        with psycopg.connect(self.url.replace("+psycopg", ""), autocommit=True) as connection:
            other_sessions = (
                b"FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
            connection.execute(b"SELECT pg_terminate_backend(pid) " + other_sessions)


@contextmanager
def postgres_to_stop(shared_directory: Path) -> Iterator[Postgres]:
    """Yield a migrated cluster in a new directory below `shared_directory`."""
    server = Postgres(shared_directory / f"pg-{uuid4().hex[:12]}")
    try:
        upgrade(server.url)
        yield server
    finally:
        server.resume()
        server.stop()
