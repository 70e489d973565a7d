"""Tests of clocks that are wrong or set while runs train (row 9 of the fault plan)."""

import re
import signal
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import select

from backend.runs import lifecycle
from backend.runs.leases import grace_seconds
from backend.storage.engine import open_read_session
from backend.storage.models import Attempt, Event
from tests.conftest import require
from tests.faults.audit import audit
from tests.faults.clocks import Clock
from tests.faults.plant import FaultyInstallation, Kind
from tests.ports import free_port
from tests.system.lab import TOKEN, Program
from tests.waiting import wait_for

TOY_TRAINER_PATH = Path(__file__).parent.parent / "worker" / "host" / "toy_trainer.py"
HOUR_SECONDS = 3600
LEASE_SECONDS = 4.0
"""Duration of a lease, long enough for a busy machine to renew it."""

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


@pytest.fixture
def clock(state_dir):
    return require(lambda: Clock(state_dir))


def trainer_on(clock):
    """Return a toy trainer with this clock that trains until stopped, like every process of its machine."""
    variables = (f"{name}={variable_value}" for name, variable_value in clock.environment.items())
    return ("env", *variables, sys.executable, str(TOY_TRAINER_PATH), "endless")


def start_installation(clock, database, **options):
    kind = Kind(database, "filesystem")
    return FaultyInstallation(
        kind, workers=0, slots=1, lease_seconds=LEASE_SECONDS, trainer=trainer_on(clock), **options
    )


def wait_for_steps(installation, run_id, *, attempt, step_count=1):
    """Wait until this attempt has made this number of additional steps."""
    first_row = installation.read(run_id)
    first_step = first_row.last_step if first_row.attempt == attempt else 0

    def has_got_on():
        run = installation.read(run_id)
        assert run.attempt <= attempt, "it was taken away"
        return run.attempt == attempt and run.last_step >= first_step + step_count

    wait_for(has_got_on, "it trains")


def assert_keeps_its_run(installation, run_id, *, attempt):
    """Check that it still trains after a time in which an invalid lease would have expired."""
    ends_at = time.monotonic() + LEASE_SECONDS + grace_seconds(LEASE_SECONDS)
    while time.monotonic() < ends_at:
        wait_for_steps(installation, run_id, attempt=attempt)


def stop(installation, run_id):
    with installation.sessions.begin() as session:
        lifecycle.request_action(session, run_id, "stop")
    wait_for(lambda: installation.read(run_id).status == "stopped", "it stops")


def check(installation, run_id):
    """Check that nothing ended before it began, and audit rows and files."""
    run = installation.read(run_id)
    with open_read_session(installation.sessions) as session:
        attempts = session.scalars(select(Attempt).where(Attempt.run_id == run_id)).all()
    spans = [
        (run.started_at, run.finished_at),
        *((attempt.started_at, attempt.ended_at) for attempt in attempts),
    ]
    assert all(begin is not None and end is not None and begin <= end for begin, end in spans)
    assert audit(installation.sessions, installation.settings.state, clock_jumped=True) == []


def answers(client, path):
    try:
        return client.get(path).status_code == 200
    except httpx.TransportError:
        return False


@contextmanager
def service_on(clock, installation):
    """Yield a client of a service that has this clock and maintains the installation's runs."""
    port = free_port()
    service = Program(
        installation.settings.state,
        "serve",
        "service",
        PORT=port,
        **installation.environment | clock.environment,
    )
    headers = {"Authorization": f"Bearer {TOKEN}"}
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1", headers=headers, timeout=60) as client:
            wait_for(lambda: answers(client, "/status"), "the service is there")
            yield client
    finally:
        service.kill_all()


def check_pages(client, run_id):
    """Check that the service answers, and reports nothing that ended before it began."""
    assert all(answers(client, path) for path in ("/queue", "/workers", "/status"))
    run = client.get(f"/runs/{run_id}").json()
    spans = [(attempt["started_at"], attempt["ended_at"]) for attempt in run["attempts"]]
    assert all(begin <= end for begin, end in [*spans, (run["started_at"], run["finished_at"])])


def clock_events(installation, run_id):
    with open_read_session(installation.sessions) as session:
        return list(
            session.scalars(select(Event.message).where(Event.run_id == run_id, Event.kind == "clock"))
        )


def test_workers_and_a_service_with_wrong_clocks_neither_lose_nor_block_a_run(clock):
    with (
        start_installation(clock, "postgres", reconciles=False) as installation,
        service_on(clock, installation) as client,
    ):
        clock.set(-HOUR_SECONDS)
        slow_worker = installation.start_worker(**clock.environment)
        (run_id,) = installation.queue([{}])
        wait_for_steps(installation, run_id, attempt=1)
        installation.start_worker()
        installation.wait_for_workers()
        assert_keeps_its_run(installation, run_id, attempt=1)
        slow_worker.send_signal(signal.SIGKILL)
        slow_worker.wait()
        clock.set(HOUR_SECONDS)  # of the service, and of the other worker's trainer, whose clock is right
        assert_keeps_its_run(installation, run_id, attempt=2)
        stop(installation, run_id)
        check_pages(client, run_id)
        assert clock_events(installation, run_id) == []
        check(installation, run_id)


@pytest.mark.nightly
def test_a_machine_whose_clock_is_set_back_and_forth_continues_and_reports_it(clock):
    with (
        start_installation(clock, "sqlite", reconciles=False) as installation,
        service_on(clock, installation) as client,
    ):
        worker = installation.start_worker(**clock.environment)
        (run_id,) = installation.queue([{}])
        wait_for_steps(installation, run_id, attempt=1)
        clock.set(HOUR_SECONDS)
        wait_for(lambda: len(clock_events(installation, run_id)) == 1, "it is told")
        assert_keeps_its_run(installation, run_id, attempt=1)
        clock.set(-HOUR_SECONDS)
        wait_for(lambda: len(clock_events(installation, run_id)) == 2, "it is told")
        wait_for_steps(installation, run_id, attempt=1)
        worker.kill()
        clock.set(-3 * HOUR_SECONDS)  # the lease that it leaves behind expires two hours in the future
        installation.start_worker(**clock.environment)
        wait_for_steps(installation, run_id, attempt=2)
        stop(installation, run_id)
        check_pages(client, run_id)
        events = clock_events(installation, run_id)
        jumps = re.findall(
            r"the database's clock (jumped ahead|went back) by ([\d,]+) s: ", "\n".join(events)
        )
        assert [direction for direction, _ in jumps] == ["jumped ahead", "went back", "went back"], events
        seconds = [float(number.replace(",", "")) for _, number in jumps]
        assert seconds == pytest.approx([HOUR_SECONDS, 2 * HOUR_SECONDS, 2 * HOUR_SECONDS], abs=60)
        check(installation, run_id)
