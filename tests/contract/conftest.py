"""Fixtures of the contract suite, which runs on SQLite and Postgres with `database` of tests/conftest.py."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from backend.base.settings import Settings
from backend.storage.models import Run
from tests.api_client import client_of_service
from tests.conftest import Database
from tests.factories import make_run


@pytest.fixture
def client(database: Database, settings: Settings) -> Iterator[TestClient]:
    """A logged-in client of a service on `database`."""
    with client_of_service(settings, database.url) as client:
        yield client


@pytest.fixture
def run(database: Database) -> Run:
    """A queued run with the default config."""
    with database.sessions.begin() as session:
        return make_run(session)
