"""A client of the service, in this process, logged in as the operator."""

from starlette.testclient import TestClient

from backend.main import create_app
from backend.settings import Settings

TOKEN = "secret"
HOST = "http://127.0.0.1:8400"


def make_client(settings: Settings, url: str, *, token: str = TOKEN) -> TestClient:
    """`token` empty: nobody."""
    app = create_app(settings.model_copy(update={"database_url": url, "broker_url": "memory://"}))
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return TestClient(
        app, base_url=HOST, headers=headers, follow_redirects=False, raise_server_exceptions=False
    )
