"""Tests of the status transitions of a run, on both databases."""

import multiprocessing
import threading

import pytest
from sqlalchemy import func, select, update

from backend.base.errors import Fenced, MoveForbidden
from backend.runs import leases, lifecycle
from backend.runs.leases import Lease, lease_expired
from backend.storage.engine import db_now, open_engine, open_sessions
from backend.storage.models import NOT_BEGUN, Attempt, Event, Run
from tests.factories import make_run

pytestmark = pytest.mark.both_databases


def claim(session, **options):
    return lifecycle.claim_run(session, "worker-0", "host", **options)


def lose_lease(session, run_id):
    """Let the lease expire, and stay expired for the grace period."""
    session.execute(update(Run).where(Run.id == run_id).values(lease_until=db_now() - 1))
    return [
        Lease(*session.execute(select(Run.id, Run.attempt, Run.lease_until).where(lease_expired())).one())
    ]


def load_status(session, run_id):
    return session.scalar(select(Run.status).where(Run.id == run_id))


def load_moves(session, run_id):
    events = session.scalars(select(Event).where(Event.run_id == run_id).order_by(Event.id))
    return [(event.data["from"], event.data["to"]) for event in events if "from" in event.data]


def test_a_claim_owns_the_run_and_counts_the_attempt(session):
    run = make_run(session)
    claimed_run = claim(session)
    assert (claimed_run.run_id, claimed_run.attempt, claimed_run.config["steps"]) == (run.id, 1, 150)
    assert load_status(session, run.id) == "running"
    attempt = session.get_one(Attempt, (run.id, 1))
    assert (attempt.worker_id, attempt.host, attempt.from_step) == ("worker-0", "host", NOT_BEGUN)


def test_the_higher_priority_starts_first_then_the_run_queued_longest(session):
    late_run = make_run(session, name="late", queued_at=300.0)
    early_run = make_run(session, name="early", queued_at=100.0)
    urgent_run = make_run(session, name="urgent", queued_at=200.0, priority=1)
    assert [claim(session).run_id for _ in range(3)] == [urgent_run.id, early_run.id, late_run.id]


def test_a_run_that_waits_for_a_later_time_or_is_in_the_trash_is_not_claimed(session):
    make_run(session, run_after=4e9)
    make_run(session, deleted_at=1.0)
    assert claim(session) is None


def test_a_run_whose_worker_was_lost_is_claimed_with_the_next_attempt(session):
    run = make_run(session)
    claim(session)
    assert claim(session) is None
    lost_leases = lose_lease(session, run.id)
    assert claim(session) is None
    assert claim(session, lost_leases=lost_leases).attempt == 2
    first = session.get_one(Attempt, (run.id, 1), populate_existing=True)
    assert first.ended_at is not None
    assert first.outcome == "the worker was lost"
    assert load_moves(session, run.id) == [
        ("queued", "running"),
        ("running", "queued"),
        ("queued", "running"),
    ]


def test_an_older_attempt_is_fenced_from_all_writes(session):
    run = make_run(session)
    claim(session)
    claim(session, lost_leases=lose_lease(session, run.id))
    for write in (
        lambda: leases.fence(session, run.id, 1),
        lambda: leases.renew_lease(session, run.id, 1),
        lambda: lifecycle.begin_attempt(session, run.id, 1, 0),
        lambda: lifecycle.finish_run(session, run.id, 1, "finished"),
        lambda: lifecycle.release_run(session, run.id, 1),
        lambda: lifecycle.fail_attempt(session, run.id, 1, "boom"),
    ):
        with pytest.raises(Fenced):
            write()
    assert leases.fence(session, run.id, 2) == ""


def test_the_fence_stores_what_it_is_given_and_tells_the_request(session):
    run = make_run(session)
    claim(session)
    lifecycle.request_action(session, run.id, "stop")
    assert leases.fence(session, run.id, 1, last_step=7) == "stop"
    assert session.scalar(select(Run.last_step)) == 7


def test_a_renewed_lease_expires_later_and_does_not_count_as_a_change_of_the_run(session):
    run = make_run(session)
    claim(session, lease_seconds=10)
    row_before = session.execute(select(Run.lease_until, Run.changed_at)).one()
    leases.renew_lease(session, run.id, 1, lease_seconds=100)
    row_after = session.execute(select(Run.lease_until, Run.changed_at)).one()
    assert row_after.lease_until - row_before.lease_until == pytest.approx(90, abs=5)
    assert row_after.changed_at == row_before.changed_at


@pytest.mark.parametrize("status", ["finished", "stopped", "failed"])
def test_an_ended_run_keeps_its_status_with_time_and_reason(session, status):
    run = make_run(session)
    claim(session)
    lifecycle.finish_run(session, run.id, 1, status, "because")
    row = session.execute(select(Run.status, Run.reason, Run.finished_at, Run.worker_id)).one()
    assert row[:2] == (status, "because")
    assert row.finished_at is not None
    assert row.worker_id is None
    assert claim(session) is None
    with pytest.raises(Fenced):
        lifecycle.finish_run(session, run.id, 1, "finished")


def test_a_released_run_is_queued_unless_the_user_wanted_it_to_end(session):
    released_run, stopped_run = make_run(session, queued_at=1.0), make_run(session, queued_at=2.0)
    claim(session)
    claim(session)
    lifecycle.request_action(session, stopped_run.id, "stop")
    assert lifecycle.release_run(session, released_run.id, 1, "the worker ends") == "queued"
    assert lifecycle.release_run(session, stopped_run.id, 1, "the worker ends") == "stopped"
    assert session.scalar(select(Run.requested_action).where(Run.id == stopped_run.id)) == ""


def test_an_interrupted_run_keeps_its_position_in_the_queue(session):
    run = make_run(session, queued_at=1.0)
    waiting_run = make_run(session, queued_at=2.0)
    claim(session)
    lifecycle.release_run(session, run.id, 1, "the worker ends")
    assert [claim(session).run_id for _ in range(2)] == [run.id, waiting_run.id]


def test_a_run_fails_at_its_third_failure(session):
    run = make_run(session)
    statuses = []
    for attempt in (1, 2, 3):
        session.execute(update(Run).values(run_after=0.0))
        assert claim(session).attempt == attempt
        statuses.append(lifecycle.fail_attempt(session, run.id, attempt, "out of memory"))
    assert statuses == ["queued", "queued", "failed"]
    assert session.scalar(select(Run.reason)) == "out of memory"


def test_a_failed_attempt_is_retried_after_a_pause(session, monkeypatch):
    monkeypatch.setattr(lifecycle, "BACKOFF_SECONDS", (60.0,))
    run = make_run(session)
    claim(session)
    lifecycle.fail_attempt(session, run.id, 1, "boom")
    assert claim(session) is None
    assert session.scalar(select(Run.run_after - db_now())) == pytest.approx(60.0, abs=30)


def test_a_run_with_a_lost_lease_is_queued_without_a_failure(session):
    run, other_run = make_run(session, queued_at=1.0), make_run(session, queued_at=2.0)
    claim(session)
    claim(session)
    lost_leases = lose_lease(session, run.id)
    assert lifecycle.take_back_lost(session, lost_leases) == [run.id]
    assert (load_status(session, run.id), load_status(session, other_run.id)) == ("queued", "running")
    assert session.scalar(select(Run.own_failures).where(Run.id == run.id)) == 0


def test_a_lost_run_with_a_stop_request_is_stopped_and_not_restarted(session):
    run = make_run(session)
    claim(session)
    lifecycle.request_action(session, run.id, "pause")
    lost_leases = lose_lease(session, run.id)
    assert claim(session, lost_leases=lost_leases) is None
    lifecycle.take_back_lost(session, lost_leases)
    assert load_status(session, run.id) == "paused"


@pytest.mark.parametrize(
    ("status", "requested_action", "expected"),
    [("queued", "stop", "stopped"), ("queued", "pause", "paused"), ("paused", "stop", "stopped")],
)
def test_a_request_takes_effect_at_once_where_nothing_runs(session, status, requested_action, expected):
    run = make_run(session, status=status)
    lifecycle.request_action(session, run.id, requested_action)
    assert load_status(session, run.id) == expected


@pytest.mark.parametrize("status", ["finished", "failed", "stopped"])
def test_an_ended_run_cannot_be_stopped(session, status):
    run = make_run(session, status=status)
    with pytest.raises(
        MoveForbidden, match=f"is {status}; stop needs a run that is queued, running or paused"
    ):
        lifecycle.request_action(session, run.id, "stop")


@pytest.mark.parametrize("status", ["paused", "stopped"])
def test_a_resumed_run_is_queued(session, status):
    run = make_run(session, status=status, own_failures=2, finished_at=5.0)
    lifecycle.resume_run(session, run.id)
    row = session.execute(select(Run.status, Run.own_failures, Run.finished_at)).one()
    assert tuple(row) == ("queued", 0, None)


def test_resuming_a_running_run_withdraws_the_request(session):
    run = make_run(session)
    claim(session)
    lifecycle.request_action(session, run.id, "pause")
    lifecycle.resume_run(session, run.id)
    assert session.scalar(select(Run.requested_action)) == ""
    with pytest.raises(MoveForbidden):
        lifecycle.resume_run(session, run.id)


def race(url: str, number: int, claims: list[tuple[str, int]]) -> None:
    engine = open_engine(url, pool_size=1)
    sessions = open_sessions(engine)
    while True:
        with sessions.begin() as session:
            claimed_run = lifecycle.claim_run(session, f"worker-{number}", "host")
        if claimed_run is None:
            break
        claims.append((claimed_run.run_id, claimed_run.attempt))
    engine.dispose()


def race_in_process(url: str, number: int, pipe) -> None:
    claims: list[tuple[str, int]] = []
    race(url, number, claims)
    pipe.send(claims)


def test_threads_that_race_for_runs_get_each_run_once(database):
    with database.sessions.begin() as session:
        run_ids = {make_run(session, name=f"run-{number}").id for number in range(24)}
    claims: list[tuple[str, int]] = []
    threads = [threading.Thread(target=race, args=(database.url, number, claims)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(run for run, _ in claims) == sorted(run_ids)
    assert {attempt for _, attempt in claims} == {1}


def test_processes_that_race_for_runs_get_each_run_once(database):
    with database.sessions.begin() as session:
        run_ids = {make_run(session, name=f"run-{number}").id for number in range(12)}
    spawn = multiprocessing.get_context("spawn")
    pipes = [spawn.Pipe(duplex=False) for _ in range(2)]
    processes = [
        spawn.Process(target=race_in_process, args=(database.url, number, sender))
        for number, (_, sender) in enumerate(pipes)
    ]
    for process in processes:
        process.start()
    claims = [run_claim for receiver, _ in pipes for run_claim in receiver.recv()]
    for process in processes:
        process.join()
    assert sorted(run for run, _ in claims) == sorted(run_ids)
    with database.sessions() as session:
        assert session.scalar(select(func.count()).select_from(Attempt)) == 12


def test_a_reason_that_no_database_accepts_is_cleaned(session):
    run = make_run(session)
    claim(session)
    lifecycle.finish_run(session, run.id, 1, "failed", "bad \0byte \ud800")
    assert session.scalar(select(Run.reason).where(Run.id == run.id)) == r"bad \x00byte \ud800"


@pytest.mark.parametrize(
    ("newest", "status", "reason"),
    [
        ("", "queued", ""),
        ("stop", "stopped", "stopped by the user"),
        ("pause", "paused", "paused by the user"),
    ],
)
def test_a_request_that_changes_while_the_trainer_saves_its_last_checkpoint_counts(
    session, newest, status, reason
):
    run = make_run(session)
    claim(session)
    lifecycle.request_action(session, run.id, "pause")
    lifecycle.request_action(session, run.id, newest)
    lifecycle.finish_run(session, run.id, 1, "paused", "paused by the user", request="pause")
    assert session.execute(select(Run.status, Run.reason, Run.requested_action)).one() == (status, reason, "")


def test_a_run_that_ends_by_itself_obeys_no_late_request(session):
    run = make_run(session)
    claim(session)
    lifecycle.request_action(session, run.id, "pause")
    lifecycle.finish_run(session, run.id, 1, "finished")
    assert session.scalar(select(Run.status)) == "finished"
