import math
import threading

import numpy as np
import pytest
from sqlalchemy import event, func, select, update
from sqlalchemy.exc import OperationalError

from backend.base.errors import Fenced
from backend.config.run import RunConfig
from backend.metrics.history import valid_steps
from backend.rollouts.records import CompletionRecord, GroupRecord
from backend.runs import lifecycle
from backend.storage.completion import Completion
from backend.storage.engine import db_now
from backend.storage.models import Metric, RolloutGroup, RolloutTokens, Run
from tests.factories import stored_completions
from tests.waiting import wait_for
from worker.recording import recorder as recorder_module
from worker.recording import write_queue as outbox
from worker.recording.recorder import Recorder
from worker.recording.records import StepRecord


@pytest.fixture
def run_id(database):
    with database.sessions.begin() as session:
        run = Run(name="r", variant="", seed=0, config={}, config_hash="", steps=9, status="queued")
        session.add(run)
        session.flush()
        lifecycle.claim_run(session, "worker", "host", lease_seconds=60)
        return run.id


@pytest.fixture
def make_recorder(database, run_id):
    """A function that makes the recorder of an attempt of the run."""

    def make(attempt=1, **config):
        return Recorder(database.sessions, run_id, attempt, config=RunConfig.model_validate(config))

    return make


def group(prompt_index=0, rewards=(1.0, 0.0), text="1+1=2"):
    return GroupRecord(
        kind="train",
        prompt_index=prompt_index,
        prompt_id=f"sums/{prompt_index}",
        problem="sums",
        domain="",
        prompt="1+1=?",
        answer="2",
        completions=[
            CompletionRecord(
                text=text,
                token_strings=["1", "+"],
                token_ids=np.array([1, 2]),
                reward=reward,
                rewards={"correctness": reward},
                advantage=reward - 0.5,
                finish_reason="stop",
                correct=reward > 0,
                arrays={"logprob": np.array([-0.5, -1.5], np.float32)},
            )
            for reward in rewards
        ],
    )


def read(database, run_id):
    with database.sessions() as session:
        return session.get_one(Run, run_id)


def count(database, table):
    with database.sessions() as session:
        if table is Completion:
            return len(stored_completions(session))
        return session.scalar(select(func.count()).select_from(table))


def steal(database):
    """Let another attempt take every run."""
    with database.sessions.begin() as session:
        session.execute(update(Run).values(attempt=Run.attempt + 1))


class Outage:
    """A database failure, during which every statement fails except in the watching thread."""

    def __init__(self, engine):
        self.is_on = False
        self.watcher = threading.current_thread()
        self.failures = 0
        event.listen(engine, "before_cursor_execute", self._fail)

    def _fail(self, *_):
        if self.is_on and threading.current_thread() is not self.watcher:
            self.failures += 1
            raise OperationalError("statement", {}, Exception("the database is away"))


def test_the_summary_in_the_runs_table_grows_with_the_steps(database, run_id, make_recorder):
    with make_recorder() as recorder:
        recorder.record_step(StepRecord(0, {"eval/accuracy": 0.2}))
        recorder.record_step(StepRecord(1, {"loss/total": math.nan}))
        recorder.record_step(StepRecord(2, {"eval/accuracy": 0.1}))
    assert read(database, run_id).summary == {
        "step": 2,
        "last": {"eval/accuracy": 0.1, "loss/total": "NaN"},
        "best": {"eval/accuracy": {"value": 0.2, "step": 0}},
        "older": {"loss/total": 1},
    }


def test_writing_a_step_again_changes_nothing(database, run_id, make_recorder):
    for _ in range(2):
        with make_recorder() as recorder:
            recorder.record_step(StepRecord(1, {"reward/mean": 0.5}, [group()]))
    assert [count(database, table) for table in (Metric, RolloutGroup, Completion, RolloutTokens)] == [
        1,
        1,
        2,
        1,
    ]


def test_an_attempt_that_lost_its_run_writes_nothing(database, run_id, make_recorder):
    recorder = make_recorder().__enter__()
    recorder.record_step(StepRecord(1, {"reward/mean": 0.5}))
    recorder.flush()
    steal(database)
    recorder.record_step(StepRecord(2, {"reward/mean": 0.6}, [group()]))
    with pytest.raises(Fenced):
        recorder.flush()
    assert read(database, run_id).last_step == 1
    assert [count(database, table) for table in (Metric, RolloutGroup)] == [1, 0]


def test_a_lost_run_is_noticed_during_a_long_step(database, make_recorder):
    recorder = make_recorder().__enter__()
    steal(database)
    wait_for(lambda: not recorder._thread.is_alive())
    with pytest.raises(Fenced):
        recorder.record_step(StepRecord(1, {}))


def test_recording_renews_the_lease(database, run_id, make_recorder):
    with database.sessions.begin() as session:
        session.execute(update(Run).values(lease_until=db_now() - 100))
    with make_recorder() as recorder:
        recorder.record_step(StepRecord(1, {}))
    with database.sessions() as session:
        assert session.scalar(select(Run.lease_until > db_now() + 50))


def test_an_outage_loses_nothing_and_does_not_stop_training(database, run_id, make_recorder):
    outage = Outage(database.engine)
    with make_recorder() as recorder:
        outage.is_on = True
        for step in range(1, 101):
            recorder.record_step(StepRecord(step, {"reward/mean": step / 100}, [group()]))
        wait_for(lambda: outage.failures >= 3)
        assert read(database, run_id).last_step == 0
        outage.is_on = False
        recorder.flush()
    assert [count(database, table) for table in (Metric, RolloutGroup)] == [100, 100]


def test_training_waits_if_the_queue_is_full(database, run_id, make_recorder, monkeypatch):
    monkeypatch.setattr(outbox, "MAX_ITEMS", 10)
    outage = Outage(database.engine)
    with make_recorder() as recorder:
        outage.is_on = True
        recorder.record_step(StepRecord(1, {}))
        wait_for(lambda: outage.failures > 0)

        def train():
            for step in range(2, 31):
                recorder.record_step(StepRecord(step, {}))

        thread = threading.Thread(target=train)
        thread.start()
        wait_for(lambda: recorder._queue.is_holding)
        assert thread.is_alive()
        outage.is_on = False
        thread.join()
    assert read(database, run_id).last_step == 30


def test_a_commit_with_unknown_result_is_repeated_safely(database, run_id, make_recorder):
    failures = []

    def lose_the_answer(_connection):
        if not failures:
            failures.append(True)
            raise OperationalError("COMMIT", {}, Exception("connection lost"))

    with make_recorder() as recorder:
        recorder.record_step(StepRecord(1, {"reward/mean": 0.5}, [group()]))
        recorder.flush()
        event.listen(database.engine, "commit", lose_the_answer)
        recorder.record_step(StepRecord(2, {"reward/mean": 0.6}, [group()]))
        recorder.flush()
    assert failures
    assert [count(database, table) for table in (Metric, RolloutGroup, Completion)] == [2, 2, 4]


def test_commit_writes_queued_records_before_its_transaction(database, run_id, make_recorder):
    with make_recorder() as recorder:
        recorder.record_step(StepRecord(1, {"reward/mean": 0.5}))
        recorder.commit(lambda session: lifecycle.finish_run(session, run_id, 1, "finished"))
    run = read(database, run_id)
    assert (run.status, run.last_step) == ("finished", 1)


def test_a_resumed_attempt_returns_to_its_checkpoint(database, run_id, make_recorder):
    with make_recorder() as recorder:
        recorder.begin(-1)
        for step, accuracy in enumerate([0.1, 0.3, 0.2, 0.9]):
            recorder.record_step(StepRecord(step, {"eval/accuracy": accuracy}))
    with database.sessions.begin() as session:
        lifecycle.release_run(session, run_id, 1)
        lifecycle.claim_run(session, "worker", "host")
    with make_recorder(attempt=2) as recorder:
        recorder.begin(2)
        run = read(database, run_id)
        assert (run.last_step, run.summary["last"]) == (2, {"eval/accuracy": 0.2})
        assert run.summary["best"] == {"eval/accuracy": {"value": 0.3, "step": 1}}
        recorder.record_step(StepRecord(3, {"eval/accuracy": 0.25}))
    with database.sessions() as session:
        valid = dict(valid_steps(session, run_id, up_to=9))
    assert valid == {n: {"eval/accuracy": value} for n, value in enumerate([0.1, 0.3, 0.2, 0.25])}


def test_reading_the_history_of_a_resumed_run_does_not_block_writers(
    database, run_id, make_recorder, monkeypatch
):
    """A write during the read of the history would fail on SQLite next to a writing transaction."""

    def history(session, run_id, *, up_to):
        with database.sessions.begin() as writer:
            writer.execute(update(Run).values(notes="written meanwhile"))
        return iter([(1, {"eval/accuracy": 0.5})])

    monkeypatch.setattr(recorder_module, "valid_steps", history)
    with make_recorder() as recorder:
        recorder.begin(1)
    run = read(database, run_id)
    assert (run.notes, run.summary["last"]) == ("written meanwhile", {"eval/accuracy": 0.5})
