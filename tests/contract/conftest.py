"""Fixtures of the contract suite, which runs on SQLite and Postgres with `database` of tests/conftest.py."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from backend.base.settings import Settings
from tests.api_client import serving
from tests.conftest import Database


@pytest.fixture
def client(database: Database, settings: Settings) -> Iterator[TestClient]:
    """A logged-in client of a service on `database`."""
    with serving(settings, database.url) as client:
        yield client
