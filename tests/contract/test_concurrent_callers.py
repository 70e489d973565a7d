"""Tests of truly concurrent callers through the HTTP API, on both databases."""

import random
import threading

import pytest
from sqlalchemy import select

from backend.runs import leases, lifecycle
from backend.runs.checkpoints import add_checkpoint, forget_old_checkpoints
from backend.storage.models import Checkpoint, Run
from tests.contract.test_forks import add_checkpoints
from tests.factories import make_run
from tests.faults.audit import attempt_violations, transition_violations

pytestmark = pytest.mark.both_databases

VERBS = ("stop", "pause", "resume", "retry", "clone", "restore")


def run_concurrently(*actions):
    """Run all functions concurrently, and raise the exception of any of them."""
    failures = []

    def run_guarded(action):
        try:
            action()
        except Exception as error:  # noqa: BLE001 - shown in the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=run_guarded, args=(act,)) for act in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_fork_never_loses_its_origin_to_a_parent_that_continues_to_train(client, database):
    """Either the fork is refused, or the checkpoint that it begins with stays."""
    with database.sessions.begin() as session:
        parent = make_run(session, config={"steps": 1000}).id
        lifecycle.claim_run(session, "worker", "host")
    accepted = []
    has_trained = threading.Event()

    def train():
        try:
            for step in range(1, 40):
                row = {"run_id": parent, "step": step, "attempt": 1, "path": f"s{step:06d}-a1"}
                row |= {"sha256": "0" * 64, "bytes_total": 1, "manifest": {}}
                for write in (
                    lambda session, row=row: add_checkpoint(session, row),
                    lambda session: forget_old_checkpoints(session, parent, keep=1),
                ):
                    with database.sessions.begin() as session:
                        leases.fence(session, parent, 1)
                        write(session)
        finally:
            has_trained.set()

    def fork():
        is_last = False
        while not is_last:  # the last call meets a stopped parent, so there is no race
            is_last = has_trained.is_set()
            newest_checkpoints = client.get(f"/api/v1/runs/{parent}/checkpoints").json()["items"]
            if newest_checkpoints:
                response = client.post(
                    f"/api/v1/runs/{parent}/fork", json={"step": newest_checkpoints[0]["step"]}
                )
                assert response.status_code in (202, 422), response.text
                if response.status_code == 202:
                    accepted.append(newest_checkpoints[0]["step"])

    run_concurrently(train, fork, fork)
    with database.sessions() as session:
        kept_steps = set(session.scalars(select(Checkpoint.step).where(Checkpoint.run_id == parent)))
    assert set(accepted) <= kept_steps
    assert accepted


def test_requests_of_many_callers_leave_a_history_without_a_forbidden_move(client, database):
    with database.sessions.begin() as session:
        runs = [make_run(session, config={"steps": 20}).id for _ in range(2)]
        for run in runs:
            add_checkpoints(session, session.get_one(Run, run), 10)

    def user(seed):
        rng = random.Random(seed)
        for _ in range(25):
            path = f"/api/v1/runs/{rng.choice(runs)}"
            verb = rng.choice([*VERBS, "trash"])
            response = client.delete(path) if verb == "trash" else client.post(f"{path}/{verb}")
            assert response.status_code in (200, 202, 409), response.text

    def worker():
        for _ in range(15):
            with database.sessions.begin() as session:
                claim = lifecycle.claim_run(session, "worker", "host")
            if claim:
                with database.sessions.begin() as session:
                    lifecycle.release_run(session, claim.run_id, claim.attempt)

    run_concurrently(*(lambda seed=seed: user(seed) for seed in range(3)), worker, worker)
    with database.sessions() as session:
        for run in session.scalars(select(Run)):
            assert [*transition_violations(session, run), *attempt_violations(session, run)] == []
