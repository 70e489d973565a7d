"""The Prometheus metrics at `/metrics`. Labels have few values: hosts of workers, but no runs, users or
paths.

Metrics from the database are left out while it is unavailable, which `grpolab_database_up` shows.
"""

import platform
from collections.abc import Iterator, Sequence
from statistics import median_low
from typing import Any, NamedTuple, get_args

from prometheus_client.core import GaugeMetricFamily, Metric
from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from backend.config.causes import Verdict
from backend.http.dependencies import Lab
from backend.runs.lifecycle import STATUSES, claimable_condition
from backend.runs.workers.store import live_slots
from backend.service.webhook.sender import KINDS, LEVELS
from backend.storage.engine import db_now, open_read_session
from backend.storage.faults import free_bytes
from backend.storage.models import Event, Run, Webhook, Worker

SLOT_STATES = ("idle", "busy", "starting")
STEP_TIME = "time/step_seconds"


class Gauge(NamedTuple):
    """A gauge and its labels."""

    description: str
    labels: tuple[str, ...] = ()


GAUGES: dict[str, Gauge] = {
    "grpolab_build_info": Gauge(
        "Always 1; the labels say which version runs.", ("version", "schema", "python")
    ),
    "grpolab_database_up": Gauge("1 while the database can be written to."),
    "grpolab_broker_up": Gauge("1 while the broker answers; without it, runs start some seconds later."),
    "grpolab_state_free_bytes": Gauge("Free space on the disk of the state directory."),
    "grpolab_streams": Gauge("Open live pages."),
    "grpolab_reconciler_age_seconds": Gauge("Time since the last pass of the reconciler in this process."),
    "grpolab_runs_to_be_stored": Gauge("Runs of this machine with steps that wait for the database."),
    "grpolab_runs": Gauge("Runs by status.", ("status",)),
    "grpolab_runs_by_verdict": Gauge("Runs by the verdict of their diagnosis.", ("verdict",)),
    "grpolab_diagnosis_events": Gauge("Events of changed verdicts and warnings.", ("level",)),
    "grpolab_webhook_failures": Gauge("Failed tries of the event that the webhook delivers next."),
    "grpolab_webhook_waiting_events": Gauge("Events that the webhook has not delivered yet."),
    "grpolab_queue_depth": Gauge("Runs that could start now."),
    "grpolab_queue_oldest_age_seconds": Gauge("Longest time that one of these runs has waited."),
    "grpolab_lease_oldest_age_seconds": Gauge(
        "Longest time since the last heartbeat of a running run's worker."
    ),
    "grpolab_ingest_lag_seconds": Gauge("Time since the slowest running run was last written."),
    "grpolab_trainer_step_seconds": Gauge("Duration of the last step of the running runs.", ("quantile",)),
    "grpolab_worker_slots": Gauge("Worker slots.", ("state",)),
    "grpolab_worker_cpu_ratio": Gauge("Busy share of a worker machine's processors.", ("host",)),
    "grpolab_worker_memory_bytes": Gauge("Memory in use on a worker machine.", ("host",)),
    "grpolab_worker_disk_free_bytes": Gauge("Free space on a worker machine's state disk.", ("host",)),
    "grpolab_worker_network_receive_bytes_per_second": Gauge("Network of a worker machine, in.", ("host",)),
    "grpolab_worker_network_send_bytes_per_second": Gauge("Network of a worker machine, out.", ("host",)),
    "grpolab_worker_gpu_ratio": Gauge("Share of the time in which the slot's GPU works.", ("host", "slot")),
    "grpolab_worker_gpu_memory_bytes": Gauge("Memory in use on the slot's GPU.", ("host", "slot")),
    "grpolab_worker_gpu_temperature_celsius": Gauge("Temperature of the slot's GPU.", ("host", "slot")),
    "grpolab_worker_gpu_power_watts": Gauge("Power of the slot's GPU.", ("host", "slot")),
}

OF_MACHINES = {
    "cpu_frac": "grpolab_worker_cpu_ratio",
    "memory_bytes": "grpolab_worker_memory_bytes",
    "disk_free_bytes": "grpolab_worker_disk_free_bytes",
    "network_receive_rate": "grpolab_worker_network_receive_bytes_per_second",
    "network_send_rate": "grpolab_worker_network_send_bytes_per_second",
    "gpu_frac": "grpolab_worker_gpu_ratio",
    "gpu_memory_bytes": "grpolab_worker_gpu_memory_bytes",
    "gpu_celsius": "grpolab_worker_gpu_temperature_celsius",
    "gpu_watts": "grpolab_worker_gpu_power_watts",
}
"""Gauges by the name of the worker's reading that they show."""

Sample = tuple[str, tuple[str, ...], float]
"""Name, label values and value of a sample."""


class Gauges:
    """A collector for one scrape."""

    def __init__(
        self, lab: Lab, gauge_values: dict[str, float], states: dict[str, Any], build: tuple[str, str]
    ) -> None:
        self._lab = lab
        self._gauge_values = gauge_values
        self._found = states
        self._build = build

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics; called by prometheus_client."""
        families = {
            name: GaugeMetricFamily(name, gauge.description, labels=gauge.labels)
            for name, gauge in GAUGES.items()
        }
        for name, labels, value in self._samples():
            families[name].add_metric(labels, value)
        yield from (family for family in families.values() if family.samples)

    def _samples(self) -> Iterator[Sample]:
        yield "grpolab_build_info", (*self._build, platform.python_version()), 1
        for component in ("database", "broker"):
            yield f"grpolab_{component}_up", (), float(self._found[component]["state"] == "ok")
        if (free_disk_bytes := free_bytes(self._lab.settings.state)) is not None:
            yield "grpolab_state_free_bytes", (), free_disk_bytes
        yield "grpolab_runs_to_be_stored", (), len(self._found["waiting"])
        for name, value in self._gauge_values.items():
            yield name, (), value
        if self._found["database"]["state"] != "away":
            try:
                with open_read_session(self._lab.sessions) as session:
                    yield from list(database_samples(session, self._lab.settings.lease_seconds))
            except SQLAlchemyError:
                return  # it has just become unavailable


def database_samples(session: Session, lease_seconds: float) -> Iterator[Sample]:
    """Yield the values that are read from the database."""
    counts: Any = session.execute(
        select(Run.status, func.count()).where(Run.deleted_at.is_(None)).group_by(Run.status)
    )
    for status, count in (dict.fromkeys(STATUSES, 0) | dict(tuple(row) for row in counts)).items():
        yield "grpolab_runs", (status,), count
    yield from _diagnosis_samples(session)
    waiting_query: Any = select(func.count(), db_now() - func.min(Run.queued_at)).where(
        claimable_condition(), Run.requested_action == ""
    )
    depth, oldest_wait = session.execute(waiting_query).one()
    yield "grpolab_queue_depth", (), depth
    yield "grpolab_queue_oldest_age_seconds", (), max(oldest_wait or 0.0, 0.0)
    running_query = select(Run.summary, db_now() - Run.lease_until, db_now() - Run.progress_at)
    rows = session.execute(running_query.where(Run.status == "running", Run.writer.is_(None))).all()
    oldest = max((overdue + lease_seconds for _, overdue, _ in rows), default=0.0)
    yield "grpolab_lease_oldest_age_seconds", (), max(oldest, 0.0)
    yield "grpolab_ingest_lag_seconds", (), max((0.0, *(lag or 0.0 for _, _, lag in rows)))
    steps = [summary["last"].get(STEP_TIME) for summary, _, _ in rows]
    if seconds := [step for step in steps if isinstance(step, int | float)]:
        yield "grpolab_trainer_step_seconds", ("0.5",), median_low(seconds)
        yield "grpolab_trainer_step_seconds", ("1",), max(seconds)
    slots = live_slots(session)
    states = [slot.status for slot in slots]
    for state in SLOT_STATES:
        yield "grpolab_worker_slots", (state,), states.count(state)
    yield from _machine_samples(slots)


def _machine_samples(slots: Sequence[Worker]) -> Iterator[Sample]:
    """Yield the newest readings of each machine and of each slot's GPU."""
    newest: dict[tuple[str, tuple[str, ...]], float] = {}
    for slot in sorted(slots, key=lambda slot: slot.seen_at):
        for reading_name, gauge in OF_MACHINES.items():
            value = (slot.stats or {}).get(reading_name)
            if isinstance(value, int | float):
                labels = (slot.host, str(slot.slot))[: len(GAUGES[gauge].labels)]
                newest[gauge, labels] = value
    for (gauge, labels), value in newest.items():
        yield gauge, labels, value


def _diagnosis_samples(session: Session) -> Iterator[Sample]:
    """Yield the metrics of verdicts, their events, and the webhook that reports them."""
    verdict_query = select(Run.verdict, func.count()).where(
        Run.deleted_at.is_(None), Run.verdict.is_not(None)
    )
    counts: Any = session.execute(verdict_query.group_by(Run.verdict)).all()
    for verdict, count in (dict.fromkeys(get_args(Verdict), 0) | dict(tuple(row) for row in counts)).items():
        yield "grpolab_runs_by_verdict", (verdict,), count
    event_counts = select(Event.level, func.count()).where(Event.kind == "diagnosis").group_by(Event.level)
    events: Any = session.execute(event_counts).all()
    for level, count in (dict.fromkeys(LEVELS, 0) | dict(tuple(row) for row in events)).items():
        yield "grpolab_diagnosis_events", (level,), count
    webhook = session.scalar(select(Webhook))
    undelivered_query = select(func.count()).where(Event.kind.in_(KINDS))
    yield "grpolab_webhook_failures", (), webhook.failures if webhook else 0
    waiting_count = session.scalar(undelivered_query.where(Event.id > webhook.event_id)) if webhook else 0
    yield "grpolab_webhook_waiting_events", (), waiting_count or 0
