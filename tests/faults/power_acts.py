"""The acts whose power is cut: launching, training, sealing, deleting, backup, restore and upgrade.

Each act runs in a separate process and immediately reports everything that was acknowledged."""

import json
import math
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from backend.base.settings import Settings
from backend.catalog.datasets.files import Uploads
from backend.http.auth.permissions import Role
from backend.http.auth.tokens import read_or_create_token
from backend.metrics.sealing import find_sealable, seal
from backend.runs import lifecycle
from backend.runs.deletion import continue_deletions
from backend.service.backup.restore import restore_backup
from backend.service.backup.save import save_backup
from backend.service.process.preflight import check_state_dir
from backend.storage.engine import db_now, open_engine, open_read_session, open_sessions
from backend.storage.migrate import migrate
from backend.storage.models import Attempt, Run
from backend.storage.schema import newest_schema
from tests.api_client import client_of_service
from tests.factories import make_attempt, make_checkpoint, make_run, write_metric
from tests.faults.deaths import RUN_CONFIG
from tests.system.lab import QUICK_CONFIG
from worker.train import Assignment, train_run

STEPS, LONG = 40, 2_500
DATASET_ROWS = b"".join(
    json.dumps({"prompt": f"{n} + 1", "answer": n + 1}).encode() + b"\n" for n in range(50)
)
EXPERIMENT_BODY = {
    "name": "e",
    "base": QUICK_CONFIG,
    "variants": [{"name": "GRPO", "preset": "grpo"}],
    "seeds": [0, 1],
}

Acknowledge = Callable[..., None]


@dataclass(frozen=True)
class Installation:
    """An installation on two disks."""

    root: Path
    database: str
    url: str
    """URL of the database, or empty for SQLite in the state directory."""

    @property
    def settings(self) -> Settings:
        """Settings of the installation."""
        return Settings(
            state_dir=self.root / "state/lab",
            datasets_dir=self.root / "state/datasets",
            database_url=self.url,
            writes_per_second=0,
        )

    @property
    def backups(self) -> Path:
        """Directory of the backups."""
        return self.root / "state/backups"

    def in_environment(self) -> None:
        """Set the environment for code that reads its settings there."""
        os.environ["STATE_DIR"] = str(self.root / "state/lab")
        os.environ["DATASETS_DIR"] = str(self.root / "state/datasets")
        os.environ["DATABASE_URL"] = self.url


def launching(installation: Installation, acknowledge: Acknowledge) -> None:
    """Play the first start, launches, an upload, changes and the trash."""
    settings = installation.settings
    check_state_dir(settings)
    acknowledge("schema", migrate(settings) and newest_schema())
    token = read_or_create_token(settings, Role.OPERATOR)
    acknowledge("token", token)
    with client_of_service(settings, settings.effective_database_url, token=token) as client:

        def call(method: str, path: str, **options: Any) -> Any:
            response = client.request(method, f"/api/v1{path}", **options)
            assert response.is_success, response.text
            return response.json()

        head = {"Content-Type": "application/x-ndjson"}
        for number in range(2):
            uploaded_dataset = call(
                "POST", "/datasets?name=rows.jsonl", content=DATASET_ROWS * (number + 1), headers=head
            )
            acknowledge("upload", uploaded_dataset["sha256"], True)
        acknowledge("upload", uploaded_dataset["sha256"], None)  # from here on, both states are allowed
        call("DELETE", f"/datasets/{uploaded_dataset['sha256']}")
        acknowledge("upload", uploaded_dataset["sha256"], False)
        runs = [run["id"] for run in call("POST", "/experiments", json=EXPERIMENT_BODY)["runs"]]
        acknowledge("run", *runs)
        acknowledge("run", call("POST", f"/runs/{runs[0]}/clone", json={"seed": 3})["id"])
        call("PATCH", f"/runs/{runs[0]}", json={"notes": "a note"})
        acknowledge("notes", runs[0], "a note")
        call("DELETE", f"/runs/{runs[1]}")
        acknowledge("trashed", runs[1])
        call("POST", f"/runs/{runs[1]}/stop")
        acknowledge("status", runs[1], "stopped")


def training(installation: Installation, acknowledge: Acknowledge) -> None:
    """Train a run from its claim to its end, with checkpoints that are added and removed."""
    installation.in_environment()
    sessions = open_sessions(open_engine(installation.settings.effective_database_url))
    with sessions.begin() as session:
        claim = lifecycle.claim_run(session, "w", "h")
    assert claim is not None
    url = installation.settings.effective_database_url
    train_run(Assignment(claim.run_id, claim.attempt, "cpu", 1, url), threading.Event())
    acknowledge("status", claim.run_id, "finished")


def sealing(installation: Installation, acknowledge: Acknowledge) -> None:
    """Seal points into blocks."""
    sessions = open_sessions(open_engine(installation.settings.effective_database_url))
    while True:
        with open_read_session(sessions) as session:
            tasks = find_sealable(session)
        if not tasks:
            break
        for _ in seal(sessions, tasks):
            with open_read_session(sessions) as session:
                for attempt in session.scalars(select(Attempt)):
                    acknowledge("sealed", attempt.run_id, attempt.packed_step)


def deleting(installation: Installation, acknowledge: Acknowledge) -> None:
    """Delete a run with a curve and a checkpoint, first to the trash and then permanently."""
    settings = installation.settings
    sessions = open_sessions(open_engine(settings.effective_database_url))
    with sessions() as session:
        run_id = session.scalars(select(Run.id).where(Run.status == "finished")).one()
    token = read_or_create_token(settings, Role.OPERATOR)
    with client_of_service(settings, settings.effective_database_url, token=token) as client:
        assert client.delete(f"/api/v1/runs/{run_id}").is_success
        acknowledge("trashed", run_id)
        assert client.delete(f"/api/v1/runs/{run_id}?forever=true").is_success
        acknowledge("deleting", run_id)
    while not continue_deletions(sessions, settings, seconds=60):
        pass
    acknowledge("gone", run_id)


def backing_up(installation: Installation, acknowledge: Acknowledge) -> None:
    """Back up everything."""
    save_backup(installation.settings, installation.backups / "tuesday")
    acknowledge("backup", "tuesday")


def restoring(installation: Installation, acknowledge: Acknowledge) -> None:
    """Restore an older backup in place of a newer installation."""
    restore_backup(installation.settings, installation.backups / "monday", overwrite=True)
    acknowledge("restored")


def upgrading(installation: Installation, acknowledge: Acknowledge) -> None:
    """Create the schema of a new database."""
    check_state_dir(installation.settings)
    migrate(installation.settings)
    acknowledge("schema", newest_schema())


FUNCTION_BY_ACT: dict[str, Callable[[Installation, Acknowledge], None]] = {
    "launching": launching,
    "training": training,
    "sealing": sealing,
    "deleting": deleting,
    "backing_up": backing_up,
    "restoring": restoring,
    "upgrading": upgrading,
}


def furnish(installation: Installation, act: str) -> None:
    """Create the state before the act, and sync it to the disk."""
    if act in ("launching", "upgrading"):
        return
    settings = installation.settings
    check_state_dir(settings)
    migrate(settings)
    read_or_create_token(settings, Role.OPERATOR)
    engine = open_engine(settings.effective_database_url)
    with open_sessions(engine).begin() as session:
        run = make_run(session, config={"steps": STEPS})
        lifecycle.claim_run(session, "w", "h")
        lifecycle.begin_attempt(session, run.id, 1, -1)
        for name in ("reward/mean", "tokens/total"):
            write_metric(session, run, name, {step: step / 7 for step in range(1, STEPS + 1)})
        make_checkpoint(session, run, settings.state, step=20, content=bytes(range(256)) * 800)
        session.execute(update(Run).where(Run.id == run.id).values(last_step=STEPS))
        lifecycle.finish_run(session, run.id, 1, "finished")
    with open_sessions(engine).begin() as session:
        make_run(session, config=RUN_CONFIG, seed=1)
    with Uploads(settings.datasets_dir).draft() as draft:
        draft.file.write(DATASET_ROWS)
    if act == "restoring":
        save_backup(settings, installation.backups / "monday")
        with open_sessions(engine).begin() as session:
            make_run(session, config={"steps": STEPS})
    if act == "sealing":
        with open_sessions(engine).begin() as session:
            _unsealed(session)
    engine.dispose()


def _unsealed(session: Session) -> None:
    """Make a run with points for three blocks."""
    run = make_run(session, seed=2, status="finished", attempt=1, last_step=LONG)
    make_attempt(session, run, 1, from_step=-1).ended_at = db_now()
    nonfinite_values = {7: math.nan, 8: math.inf, 9: -0.0}
    for name in ("reward/mean", "policy/entropy"):
        write_metric(session, run, name, {step: step / 7 for step in range(1, LONG + 1)} | nonfinite_values)
