"""Test random operations on runs against a small model, on both databases.

GRPOLAB_MODEL_OPERATIONS sets the number of operations, e.g. 2000 for the long form."""

import os
import random
from typing import Any

import pytest
from sqlalchemy import select, update

from backend.base.errors import Conflict, Fenced, RunNotFound
from backend.runs import leases, lifecycle
from backend.runs.deletion import begin_deletion, continue_deletions
from backend.runs.leases import Lease
from backend.runs.store import restore_run, trash_run
from backend.storage.engine import db_now
from backend.storage.models import Run
from tests.factories import make_run
from tests.faults.audit import audit

pytestmark = pytest.mark.both_databases

OPERATION_COUNT = int(os.environ.get("GRPOLAB_MODEL_OPERATIONS", "150"))
MAX_RUNS = 6
AFTER_REQUEST = {"": "queued", "stop": "stopped", "pause": "paused"}


class Model:
    """The expected state of a run: status, request, whether it lies in the trash, attempt, own failures."""

    def __init__(self):
        self.status, self.requested_action, self.trashed, self.attempt, self.failures = (
            "queued",
            "",
            False,
            0,
            0,
        )

    def stop(self):
        self._request("stop", {"queued": "stopped", "paused": "stopped"})

    def pause(self):
        self._request("pause", {"queued": "paused"})

    def _request(self, requested_action, status_after):
        if self.status == "running":
            self.requested_action = requested_action
        elif self.status in status_after:
            self.status = status_after[self.status]
        else:
            raise Conflict("")

    def resume(self):
        if self.trashed or not (self.status in ("paused", "stopped") or self.requested_action):
            raise Conflict("")
        if self.status == "running":
            self.requested_action = ""
        else:
            self.status, self.failures = "queued", 0

    def retry(self):
        if self.trashed or self.status not in ("failed", "stopped"):
            raise Conflict("")
        self.status, self.failures = "queued", 0

    def trash(self):
        self.trashed = True
        self.requested_action = "stop" if self.status == "running" else ""

    def restore(self):
        self.requested_action = (
            "" if self.trashed and self.requested_action == "stop" else self.requested_action
        )
        self.trashed = False

    def leave(self, status):
        self._owned()
        self.status, self.requested_action = status, ""

    def release(self):
        self.leave(AFTER_REQUEST[self.requested_action])

    def fail(self):
        self._owned()
        self.failures += 1
        self.leave(
            "failed" if self.failures >= lifecycle.MAX_FAILURES else AFTER_REQUEST[self.requested_action]
        )

    def _owned(self):
        if self.status != "running":
            raise Fenced("", 0)


def lose(session, run_id, _attempt):
    """Let the lease expire visibly, and let the reconciler take the run back."""
    session.execute(update(Run).where(Run.id == run_id, Run.status == "running").values(lease_until=1.0))
    row = session.execute(select(Run.id, Run.attempt, Run.lease_until).where(Run.id == run_id)).one()
    if not lifecycle.take_back_lost(session, [Lease(*row)]):
        raise Fenced(run_id, row.attempt)


OPERATIONS_BY_NAME: dict[str, tuple[Any, Any]] = {
    "stop": (Model.stop, lambda s, run, _: lifecycle.request_action(s, run, "stop")),
    "pause": (Model.pause, lambda s, run, _: lifecycle.request_action(s, run, "pause")),
    "resume": (Model.resume, lambda s, run, _: lifecycle.resume_run(s, run)),
    "retry": (Model.retry, lambda s, run, _: lifecycle.retry_run(s, run)),
    "trash": (Model.trash, lambda s, run, _: trash_run(s, run)),
    "restore": (Model.restore, lambda s, run, _: restore_run(s, run)),
    "finish": (
        lambda model: model.leave("finished"),
        lambda s, run, attempt: lifecycle.finish_run(s, run, attempt, "finished"),
    ),
    "release": (Model.release, lifecycle.release_run),
    "fail": (Model.fail, lambda s, run, attempt: lifecycle.fail_attempt(s, run, attempt, "boom")),
    "lose": (Model.release, lose),
}


def play(model, sessions, run_id, name):
    """Apply one operation to model and record, which must agree on whether it is refused."""
    step, apply = OPERATIONS_BY_NAME[name]
    expected = outcome = None
    try:
        step(model)
    except (Conflict, Fenced) as error:
        expected = type(error)
    try:
        with sessions.begin() as session:
            apply(session, run_id, model.attempt)
    except (Conflict, Fenced) as error:
        outcome = Fenced if isinstance(error, Fenced) else Conflict
    assert outcome is expected, (name, vars(model))


def claim(models, sessions):
    """Let a worker claim one of the queued runs, or none if none is queued."""
    waiting_ids = {
        run_id for run_id, model in models.items() if model.status == "queued" and not model.trashed
    }
    with sessions.begin() as session:
        session.execute(update(Run).values(run_after=0.0))
        claimed_run = lifecycle.claim_run(session, "worker", "host")
    assert (claimed_run.run_id in waiting_ids) if claimed_run else not waiting_ids
    if claimed_run:
        models[claimed_run.run_id].status = "running"
        models[claimed_run.run_id].attempt += 1
        with sessions.begin() as session, pytest.raises(Fenced):
            leases.fence(session, claimed_run.run_id, claimed_run.attempt - 1)


def delete(models, sessions, settings, run_id):
    """Delete the run permanently, if that is allowed."""
    is_allowed = models[run_id].trashed and models[run_id].status != "running"
    try:
        with sessions.begin() as session:
            begin_deletion(session, run_id)
    except Conflict:
        assert not is_allowed
        return
    assert is_allowed
    del models[run_id]
    with sessions.begin() as session, pytest.raises(RunNotFound):
        restore_run(session, run_id)
    assert continue_deletions(sessions, settings, seconds=60) == 1


@pytest.mark.parametrize("seed", [1, 2])
def test_model_and_record_agree_after_every_operation(database, settings, seed):
    rng = random.Random(seed)
    models: dict[str, Model] = {}
    for _ in range(OPERATION_COUNT):
        if len(models) < MAX_RUNS and (not models or rng.random() < 0.1):
            with database.sessions.begin() as session:
                models[make_run(session, queued_at=db_now()).id] = Model()
        run_id = rng.choice(sorted(models))
        name = rng.choice([*OPERATIONS_BY_NAME, "claim", "claim", "claim", "delete"])
        if name == "claim":
            claim(models, database.sessions)
        elif name == "delete":
            delete(models, database.sessions, settings, run_id)
        else:
            play(models[run_id], database.sessions, run_id, name)
        with database.sessions() as session:
            for run in session.scalars(select(Run)):
                model = models[run.id]
                assert vars(model) == {
                    "status": run.status,
                    "requested_action": run.requested_action,
                    "trashed": run.deleted_at is not None,
                    "attempt": run.attempt,
                    "failures": run.own_failures,
                }, (name, run_id)
    assert audit(database.sessions, settings.state) == []
