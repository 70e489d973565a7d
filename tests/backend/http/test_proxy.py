"""Tests of the service behind a TLS proxy: only a trusted proxy's client address and scheme are used."""

from urllib.parse import urlsplit

import pytest
from starlette.testclient import TestClient

from backend.http.auth.tokens import login_link
from backend.http.login import LOGINS_PER_MINUTE
from backend.service.main import create_app
from backend.service.process.server import server_config

PROXY_ADDRESS = "192.0.2.7"
HOST = "lab.example"


@pytest.fixture
def behind_proxy(settings, sqlite_url):
    """A factory of clients with a given address, whose requests pass through uvicorn's proxy handling."""

    apps = []

    def connected(address, *, trusted):
        proxied_settings = settings.model_copy(
            update={"trusted_proxies": trusted, "allowed_hosts": (HOST,), "database_url": sqlite_url}
        )
        app = create_app(proxied_settings)
        config = server_config(app, proxied_settings)
        config.load()
        apps.append(app)
        return TestClient(config.loaded_app, base_url=f"http://{HOST}", client=(address, 50_000))

    yield connected
    for app in apps:
        app.state.status.close()
        app.state.lab.engine.dispose()


def cookie_from_a_link(client, settings, **headers):
    response = client.get(
        f"/?{urlsplit(login_link(settings)).query}", headers=headers, follow_redirects=False
    )
    assert response.status_code == 303
    return response.headers["set-cookie"]


def test_over_https_the_cookie_is_never_sent_unencrypted(behind_proxy, settings):
    client = behind_proxy(PROXY_ADDRESS, trusted=PROXY_ADDRESS)
    assert "Secure" in cookie_from_a_link(client, settings, **{"X-Forwarded-Proto": "https"})
    assert "Secure" not in cookie_from_a_link(client, settings, **{"X-Forwarded-Proto": "http"})


@pytest.mark.parametrize("trusted", ["", "192.0.2.8"])
def test_only_the_trusted_proxy_is_believed(behind_proxy, settings, trusted):
    client = behind_proxy(PROXY_ADDRESS, trusted=trusted)
    assert "Secure" not in cookie_from_a_link(client, settings, **{"X-Forwarded-Proto": "https"})


def guess(client, claimed_address):
    headers = {"X-Forwarded-For": claimed_address, "Origin": f"http://{HOST}"}
    return client.post("/login", data={"token": "wrong"}, headers=headers).status_code


def test_forged_client_addresses_do_not_give_more_login_attempts(behind_proxy):
    client = behind_proxy(PROXY_ADDRESS, trusted="")
    statuses = [guess(client, f"198.51.100.{number}") for number in range(LOGINS_PER_MINUTE + 1)]
    assert statuses == [401] * LOGINS_PER_MINUTE + [429]


def test_behind_the_trusted_proxy_each_address_has_its_own_attempts(behind_proxy):
    client = behind_proxy(PROXY_ADDRESS, trusted=PROXY_ADDRESS)
    statuses = [guess(client, "198.51.100.1") for _ in range(LOGINS_PER_MINUTE + 1)]
    assert statuses[-1] == 429
    assert guess(client, "198.51.100.2") == 401
    assert guess(client, "203.0.113.9, 198.51.100.1") == 429  # the part that the proxy has added
