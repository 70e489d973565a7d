"""Clients of a service on SQLite."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from backend.settings import Settings
from tests.api_client import make_client


@pytest.fixture
def client(sqlite_url: str, settings: Settings) -> Iterator[TestClient]:
    """Logged in as the operator."""
    client = make_client(settings, sqlite_url)
    yield client
    client.app.state.lab.engine.dispose()


@pytest.fixture
def stranger(sqlite_url: str, settings: Settings) -> Iterator[TestClient]:
    """Without any token."""
    client = make_client(settings, sqlite_url, token="")
    yield client
    client.app.state.lab.engine.dispose()
