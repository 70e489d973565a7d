"""Tests of a real Postgres that is stopped: the service reports it and recovers by itself."""

import asyncio
import json
import os
import re
import time

import pytest
from sqlalchemy import select

from backend.config.run import RunConfig
from backend.http.problem_details import MEDIA_TYPE
from backend.runs import lifecycle
from backend.runs.events import add_event
from backend.service.live.broadcaster import Broadcaster
from backend.service.monitoring.backlog import note_path
from backend.storage.engine import open_engine, open_sessions
from backend.storage.models import Event, Metric, Run
from tests.api_client import client_of_service
from tests.outages import postgres_to_stop
from tests.waiting import wait_for
from worker.recording.recorder import Recorder
from worker.recording.records import StepRecord

pytestmark = pytest.mark.nightly

OUTAGE_SECONDS = float(os.environ.get("OUTAGE_SECONDS", "4"))
"""Duration of the outage; the long form of these tests takes 35."""


@pytest.fixture(scope="module")
def postgres(shared):
    with postgres_to_stop(shared) as server:
        yield server


@pytest.fixture
def client(postgres, settings):
    with client_of_service(settings, postgres.url) as client:
        yield client


def is_back(client):
    return client.get("/api/v1/runs").status_code == 200


def list_paths(client):
    """Return every GET route that reads SQL, with an id where the path needs one."""
    paths = []
    for path, operations in client.app.openapi()["paths"].items():
        if "get" not in operations or path in PATHS_WITHOUT_DATABASE:
            continue
        required = [
            parameter for parameter in operations["get"].get("parameters", []) if parameter.get("required")
        ]
        query = "&".join(f"{parameter['name']}=x" for parameter in required if parameter["in"] == "query")
        paths.append(
            path.replace("{run_id}", "x").replace("{experiment_id}", "x") + (f"?{query}" if query else "")
        )
    return paths


PATHS_WITHOUT_DATABASE = {"/healthz", "/api/v1/status", "/api/v1/stream"}
"""Paths that answer without the database."""


def test_every_route_is_503_while_postgres_is_stopped_and_recovers(postgres, client):
    assert is_back(client)
    postgres.stop()
    statuses = {}
    for path in list_paths(client):
        response = client.get(path)
        statuses[path] = response.status_code
        if response.status_code == 503:
            assert response.headers["content-type"] == MEDIA_TYPE
            assert response.headers["retry-after"]
    assert not {path: status for path, status in statuses.items() if status >= 500 and status != 503}
    assert sum(status == 503 for status in statuses.values()) >= 15
    body = {"name": "x", "base": {}, "variants": [{"name": "v"}], "seeds": [0]}
    for method, path in (("POST", "/experiments"), ("POST", "/runs/x/stop"), ("DELETE", "/runs/x")):
        response = client.request(method, f"/api/v1{path}", json=body if path == "/experiments" else {})
        assert (response.status_code, response.headers["content-type"]) == (503, MEDIA_TYPE), (
            path,
            response.text,
        )
    assert client.get("/healthz").status_code == 200
    assert "the database does not answer" in client.get("/readyz").json()["detail"]
    status = client.get("/api/v1/status").json()["database"]
    assert (status["state"], status["detail"]) == ("away", "the database does not answer")
    postgres.start()
    wait_for(lambda: is_back(client))
    wait_for(lambda: client.get("/api/v1/status").json()["database"]["state"] == "ok")


def test_an_open_page_continues_at_its_position_when_postgres_is_back(postgres, client):
    sessions = client.app.state.lab.sessions
    messages, is_there = [], asyncio.Event()

    def write_event(message):
        with sessions.begin() as session:
            add_event(session, "data", message)

    async def follow(broadcaster):
        async for chunk in broadcaster.listen(""):
            if b"event: hello" in chunk:
                is_there.set()
            messages.extend(
                json.loads(payload)["message"]
                for payload in re.findall(r"event: event\ndata: (.*)", chunk.decode())
            )

    async def go():
        broadcaster = Broadcaster(sessions)
        page = asyncio.create_task(follow(broadcaster))
        await is_there.wait()  # earlier events are not sent
        write_event("before")
        await wait_until(lambda: messages)
        postgres.stop()
        await asyncio.sleep(OUTAGE_SECONDS / 2)
        postgres.start()
        write_event("after")
        await wait_until(lambda: len(messages) > 1)
        assert not page.done()
        broadcaster.close()
        await page

    async def wait_until(condition):
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110 - what is waited for is in a database
                await asyncio.sleep(0.05)

    assert is_back(client)
    asyncio.run(go())
    assert messages == ["before", "after"]


def claimed_run(sessions):
    """Return the id of a run that this process owns."""
    with sessions.begin() as session:
        run = Run(name="r", variant="", seed=0, config={}, config_hash="", steps=9, status="queued")
        session.add(run)
        session.flush()
        lifecycle.claim_run(session, "worker", "host", lease_seconds=60)
        return run.id


def test_steps_are_queued_in_memory_while_postgres_is_stopped_and_all_arrive(postgres, settings):
    engine = open_engine(postgres.url)
    sessions = open_sessions(engine)
    run_id = claimed_run(sessions)
    with client_of_service(settings, postgres.url) as client:
        recorder = Recorder(sessions, run_id, 1, config=RunConfig(), note=note_path(settings, run_id))
        with recorder:
            recorder.record_step(StepRecord(1, {"reward/mean": 0.0}))
            recorder.flush()
            postgres.stop()
            for step in range(2, 102):
                recorder.record_step(StepRecord(step, {"reward/mean": step / 100}))

            def find_waiting_notes():
                return [
                    note for note in client.get("/api/v1/status").json()["waiting"] if note["steps"] == 100
                ]

            (note,) = wait_for(find_waiting_notes)
            assert (note["run"], note["is_held"]) == (run_id, False)
            assert note["reason"] == "the database does not answer"
            time.sleep(OUTAGE_SECONDS)
            postgres.start()
            recorder.flush()
        assert client.get("/api/v1/status").json()["waiting"] == []
    with sessions() as session:
        assert len(session.scalars(select(Metric.step)).all()) == 101
        (line,) = session.scalars(select(Event.message).where(Event.kind == "database"))
        assert line.startswith("waited ")
        assert line.endswith(": the database does not answer; nothing was lost")
    engine.dispose()
