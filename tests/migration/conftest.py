"""Fixtures of databases without a schema."""

import os

import pytest
from sqlalchemy import create_engine, make_url, text


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request, tmp_path):
    """URL of a database without a schema."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'new.db'}"
        return
    server = make_url(request.getfixturevalue("postgres"))
    name = f"migrated_{os.getpid()}"  # the server is shared with the other test processes
    admin = create_engine(server, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    yield server.set(database=name).render_as_string(hide_password=False)
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()
