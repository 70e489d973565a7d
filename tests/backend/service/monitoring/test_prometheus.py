"""Tests of the metrics for Prometheus, read through its own parser."""

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import select

from backend.runs import lifecycle
from backend.service.monitoring.prometheus import GAUGES, OF_MACHINES
from backend.storage.models import Run, Worker
from tests.api_client import client_of_service
from tests.factories import make_run


def scraped_metrics(client):
    """Return {name: {values of the labels: value}} of a scrape."""
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        family.name: {tuple(sample.labels.values()): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(response.text)
    }


@pytest.fixture
def metrics_client(settings, database):
    with client_of_service(settings, database.url) as client:
        yield client


def test_an_idle_installation(metrics_client):
    scrape = scraped_metrics(metrics_client)
    assert set(scrape) >= {*GAUGES} - {"grpolab_trainer_step_seconds", *OF_MACHINES.values()}
    assert scrape["grpolab_database_up"] == scrape["grpolab_broker_up"] == {(): 1}
    ((build, build_value),) = scrape["grpolab_build_info"].items()
    assert (len(build), build_value) == (3, 1)
    assert set(scrape["grpolab_runs"]) == {(status,) for status in lifecycle.STATUSES}
    assert sum(scrape["grpolab_runs"].values()) == scrape["grpolab_queue_depth"][()] == 0
    assert scrape["grpolab_lease_oldest_age_seconds"] == scrape["grpolab_ingest_lag_seconds"] == {(): 0}
    assert scrape["grpolab_state_free_bytes"][()] > 0
    assert 0 <= scrape["grpolab_reconciler_age_seconds"][()] < 600
    assert scrape["process_resident_memory_bytes"][()] > 1e6


def test_runs_workers_leases_and_steps(metrics_client, database):
    with database.sessions.begin() as session:
        for step_seconds in (0.5, 2.0, "NaN"):
            run = make_run(session)
            lifecycle.claim_run(session, "w", "h", lease_seconds=60)
            run.summary = {"step": 3, "last": {"time/step_seconds": step_seconds}, "best": {}}
            run.progress_at = Run.progress_at - 100
            run.lease_until = Run.lease_until - 30
        make_run(session, queued_at=1.0)
        make_run(session, run_after=4e9)
        for number, status in enumerate(("idle", "busy", "busy")):
            session.add(
                Worker(id=f"w{number}", host="h", pid=1, slot=number, device="cpu", status=status, stats={})
            )
    scrape = scraped_metrics(metrics_client)
    assert scrape["grpolab_runs"][("running",)] == 3
    assert scrape["grpolab_runs"][("queued",)] == 2
    assert scrape["grpolab_queue_depth"] == {(): 1}
    assert scrape["grpolab_queue_oldest_age_seconds"][()] > 1e9
    assert 30 <= scrape["grpolab_lease_oldest_age_seconds"][()] < 630
    assert 100 <= scrape["grpolab_ingest_lag_seconds"][()] < 700
    assert scrape["grpolab_trainer_step_seconds"] == {("0.5",): 0.5, ("1",): 2.0}
    assert scrape["grpolab_worker_slots"] == {("idle",): 1, ("busy",): 2, ("starting",): 0}
    with database.sessions() as session:
        assert session.scalars(select(Run.name)).first() not in str(scrape)


def test_without_a_database_the_other_metrics_are_returned(settings, tmp_path):
    with client_of_service(settings, f"sqlite:///{tmp_path}/missing/x.db") as client:
        scrape = scraped_metrics(client)
    assert scrape["grpolab_database_up"] == {(): 0}
    assert "grpolab_runs" not in scrape
    assert "grpolab_http_request_duration_seconds" in scrape or "grpolab_state_free_bytes" in scrape
