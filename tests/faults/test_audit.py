"""The invariant checker sees what it is there to see: each test plants one violation."""

import shutil
import sqlite3
from contextlib import closing

import psycopg
import pytest
from sqlalchemy import delete, select, text, update

from backend.metrics.sealing import seal, sealable
from backend.runs import lifecycle
from backend.storage.engine import open_engine, open_sessions
from backend.storage.models import Attempt, Event, LogChunk, Metric, MetricBlock, Run
from tests.factories import make_checkpoint, make_group, make_run, write_metric
from tests.faults.audit import audit

pytestmark = pytest.mark.nightly


@pytest.fixture
def run_id(database, state_dir):
    """A run that a killed worker took to step 3 and a second one from the checkpoint of step 2 to step 4."""
    with database.sessions.begin() as session:
        run = make_run(session, steps=4)
        first = lifecycle.claim_run(session, "w1", "h")
        lifecycle.begin_attempt(session, run.id, 1, -1)
        write_metric(session, run, "reward/mean", {1: 0.1, 2: 0.2, 3: 0.3}, attempt=1)
        make_group(session, run, step=1, attempt=1)
        make_group(session, run, step=3, attempt=1)
        make_checkpoint(session, run, state_dir, step=2)
        lifecycle.release_run(session, run.id, 1, "the trainer was ended by SIGKILL")
    with database.sessions.begin() as session:
        second = lifecycle.claim_run(session, "w2", "h")
        lifecycle.begin_attempt(session, run.id, 2, 2)
        write_metric(session, run, "reward/mean", {3: 0.3, 4: 0.4}, attempt=2)
        make_group(session, run, step=3, attempt=2)
        session.execute(update(Run).values(last_step=4))
        make_checkpoint(session, run, state_dir, step=4, attempt=2)
        lifecycle.finish_run(session, run.id, 2, "finished")
    assert (first.run_id, second.attempt) == (run.id, 2)
    return run.id


@pytest.fixture
def audited(database, state_dir, run_id):
    """What the audit says after a change, each sentence by its number."""

    def audited(*statements, **options):
        with database.sessions.begin() as session:
            for statement in statements:
                session.execute(statement)
        return [sentence[:2] for sentence in audit(database.sessions, state_dir, **options)]

    return audited


def test_a_run_that_was_killed_and_continued_has_no_violation(database, state_dir, run_id):
    assert audit(database.sessions, state_dir, canary="hunter2") == []


@pytest.fixture
def sealed(database, run_id):
    """The same run, all its points in blocks."""
    with database.sessions() as session:
        tasks = sealable(session)
    assert list(seal(database.sessions, tasks))


@pytest.mark.usefixtures("sealed")
def test_a_block_that_was_damaged_is_seen(database, audited):
    assert audited() == []
    with database.sessions() as session:
        data = session.scalar(select(MetricBlock.data).where(MetricBlock.attempt == 2))
    assert (
        audited(update(MetricBlock).where(MetricBlock.attempt == 2).values(data=data[:-1] + b"?"))[0] == "I1"
    )


@pytest.mark.usefixtures("sealed")
def test_a_lost_block_and_a_row_that_should_be_in_one_are_seen(database, audited, run_id):
    with database.sessions.begin() as session:
        (key,) = session.scalars(select(MetricBlock.key_id).distinct())
        session.add(Metric(run_id=run_id, key_id=key, step=2, attempt=1, kind=0, value=0.2))
    assert audited() == ["I1"]
    assert audited(delete(Metric), delete(MetricBlock).where(MetricBlock.attempt == 2)) != []


def test_a_lost_step_is_seen(audited):
    assert audited(delete(Metric).where(Metric.step == 1)) == ["I1", "I1"]  # its rollouts have no metrics now


def test_a_step_behind_the_last_one_is_seen(audited):
    assert audited(update(Run).values(last_step=3)) == ["I1"]


def test_a_second_valid_row_of_a_step_is_seen(audited):
    """As if attempt 2 had written a step that it never trained."""
    assert audited(update(Attempt).where(Attempt.number == 2).values(from_step=3)) == ["I1", "I1"]


def test_rollouts_of_another_attempt_than_the_metrics_are_seen(database, audited):
    with database.sessions.begin() as session:
        run = session.query(Run).one()
        make_group(session, run, step=2, attempt=2, prompt_index=1)
    assert audited(update(Attempt).where(Attempt.number == 2).values(from_step=1)) != []


def test_a_missing_attempt_is_seen(audited):
    assert audited(delete(Attempt).where(Attempt.number == 1)) == ["I2"]


def test_an_attempt_that_never_ended_is_seen(audited):
    assert audited(update(Attempt).where(Attempt.number == 1).values(ended_at=None)) == ["I2"]


def test_two_attempts_at_the_same_time_are_seen(audited):
    overlap = update(Attempt).where(Attempt.number == 1).values(ended_at=Attempt.ended_at + 60)
    assert audited(overlap) == ["I2"]
    assert audited(clock_jumped=True) == []


def test_a_word_of_an_old_attempt_after_a_new_one_began_is_seen(database, audited, run_id):
    with database.sessions.begin() as session:
        session.add(Event(run_id=run_id, attempt=1, kind="data", message="still here"))
    assert audited() == ["I2"]


def test_rows_of_an_attempt_that_never_was_are_seen(database, audited):
    with database.sessions.begin() as session:
        write_metric(session, session.query(Run).one(), "loss/total", {4: 1.0}, attempt=7)
    assert audited() == ["I1", "I2"]


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "swap manifest", "remove all"])
def test_a_damaged_checkpoint_is_seen(state_dir, run_id, audited, damage):
    checkpoint, older = (state_dir / "runs" / run_id / name for name in ("s000004-a2", "s000002-a1"))
    match damage:
        case "flip":
            (checkpoint / "model.safetensors").write_bytes(b"weighTs")
        case "cut":
            (checkpoint / "model.safetensors").write_bytes(b"weig")
        case "remove":
            (checkpoint / "model.safetensors").unlink()
        case "swap manifest":
            (checkpoint / "manifest.json").write_text('{"files": {}}')
        case "remove all":
            shutil.rmtree(checkpoint)
    assert older.is_dir()
    assert audited() == ["I3"]
    assert audited(damaged={f"{run_id}/s000004-a2"}) == []


@pytest.mark.parametrize(
    "move",
    [
        {"from": "finished", "to": "running"},
        {"from": "paused", "to": "queued"},
        {"from": "queued", "to": "done"},
    ],
)
def test_a_move_that_is_not_allowed_or_does_not_follow_is_seen(database, audited, run_id, move):
    with database.sessions.begin() as session:
        session.add(Event(run_id=run_id, kind="lifecycle", message="?", data=move))
    assert set(audited()) == {"I4"}


def test_a_status_that_no_move_led_to_is_seen(audited):
    assert audited(update(Run).values(status="paused")) == ["I4"]
    assert audited(update(Run).values(status="lost")) == ["I4", "I4"]


def test_rows_of_a_run_that_is_not_there_are_seen(database, audited):
    with database.sessions.begin() as session:
        (key_id,) = session.scalars(select(Metric.key_id).distinct())
        session.add(Metric(run_id="nobody", key_id=key_id, step=1, attempt=1, kind=0, value=1.0))
    assert audited() == ["I5"]


def test_tokens_of_no_group_are_seen(database, audited):
    lose = "UPDATE rollout_tokens SET group_id = 'z' || substr(group_id, 2)"
    if "postgres" in database.url:
        with psycopg.connect(database.url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("SET session_replication_role = replica")
            connection.execute(lose)
    else:
        with closing(sqlite3.connect(database.engine.url.database, isolation_level=None)) as plain:
            plain.execute(lose)
    assert set(audited()) == ({"I5"} if "postgres" in database.url else {"I5", "I6"})


def test_a_directory_of_no_run_and_a_file_of_no_checkpoint_are_seen(state_dir, run_id, audited):
    (state_dir / "runs" / "nobody").mkdir()
    (state_dir / "runs" / run_id / ".s000004-a1.77.draft").mkdir()
    assert audited() == ["I5", "I5"]


def test_a_column_that_no_model_knows_is_seen(sqlite_url, state_dir):
    engine = open_engine(sqlite_url)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE run ADD COLUMN mood TEXT"))
    assert [sentence[:2] for sentence in audit(open_sessions(engine), state_dir)] == ["I6"]
    engine.dispose()


@pytest.mark.parametrize("location", ["row", "file"])
def test_the_canary_is_seen(database, state_dir, run_id, audited, location):
    if location == "row":
        with database.sessions.begin() as session:
            session.add(LogChunk(run_id=run_id, attempt=1, number=1, text="password: hunter2"))
    else:
        (state_dir / "worker.log").write_text("password: hunter2")
        (state_dir / "token").write_text("hunter2")
    assert audited() == []
    assert audited(canary="hunter2") == ["I7"]
