"""Tests of a real Valkey that is killed or stopped: launches continue, and runs still start."""

import signal

import pytest

from tests.api_client import TOKEN, client_of_service
from tests.waiting import wait_for
from tests.worker.host.conftest import broker  # noqa: F401 - a fixture
from tests.worker.host.test_worker_process import (  # noqa: F401 - fixtures
    have_status,
    queue_runs,
    ring_until,
    settings,
    start_worker,
)

pytestmark = pytest.mark.nightly

LAUNCH_BODY = {"name": "x", "base": {}, "variants": [{"name": "v"}], "seeds": [0]}


def fetch_broker_status(client):
    return client.get("/api/v1/status").json()["broker"]


@pytest.mark.parametrize("fault", [signal.SIGKILL, signal.SIGSTOP])
def test_launching_continues_during_a_broker_outage_and_the_page_reports_it(settings, broker, fault):  # noqa: F811
    with_token = settings.model_copy(update={"grpolab_token": TOKEN})
    with client_of_service(with_token, settings.database_url, broker_url="") as client:
        wait_for(lambda: fetch_broker_status(client)["state"] == "ok")
        broker.send_signal(fault)
        for _ in range(3):
            assert client.post("/api/v1/experiments", json=LAUNCH_BODY).status_code == 201
        status_away = wait_for(lambda: (status := fetch_broker_status(client))["state"] == "away" and status)
        assert status_away["detail"] == "the broker does not answer: runs still start, up to 600 s later"
        assert status_away["detail"] in client.get("/readyz").json()["detail"]
        assert client.get("/api/v1/runs").status_code == 200
        if fault == signal.SIGSTOP:
            broker.send_signal(signal.SIGCONT)
            wait_for(lambda: fetch_broker_status(client)["state"] == "ok")


def test_a_stopped_broker_delays_no_run(settings, sessions, broker, start_worker):  # noqa: F811
    start_worker(poll_seconds=1)
    broker.send_signal(signal.SIGSTOP)
    runs = queue_runs(sessions, 2)
    wait_for(have_status(sessions, "finished", runs))
    broker.send_signal(signal.SIGCONT)
    later_runs = queue_runs(sessions, 1)
    ring_until(settings, have_status(sessions, "finished", later_runs))
