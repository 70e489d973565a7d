"""Fixtures with HTTP clients of a service on SQLite."""

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from backend.base.settings import Settings
from tests.api_client import VIEWER_TOKEN, client_of_service


@pytest.fixture
def client(sqlite_url: str, settings: Settings) -> Iterator[TestClient]:
    """A client that is logged in as the operator."""
    with client_of_service(settings, sqlite_url) as client:
        yield client


@pytest.fixture
def viewer(sqlite_url: str, settings: Settings) -> Iterator[TestClient]:
    """A client that is logged in as a viewer."""
    with client_of_service(settings, sqlite_url, token=VIEWER_TOKEN) as client:
        yield client


@pytest.fixture
def stranger(sqlite_url: str, settings: Settings) -> Iterator[TestClient]:
    """A client without a token."""
    with client_of_service(settings, sqlite_url, token="") as client:
        yield client
