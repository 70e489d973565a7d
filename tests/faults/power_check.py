"""After a power cut, restart like `make up`, check acknowledged data, let runs end, and audit."""

import hashlib
import threading
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from backend.base.errors import GrpoLabError
from backend.base.settings import Settings
from backend.catalog.datasets.files import Uploads
from backend.http.auth.permissions import Role
from backend.http.auth.tokens import read_or_create_token
from backend.metrics.sealing import find_sealable, seal
from backend.runs import lifecycle
from backend.runs.deletion import continue_deletions
from backend.service.backup.contents import read_manifest, verify
from backend.service.backup.restore import restore_backup
from backend.service.process.preflight import CannotStart, check_database, check_state_dir, restore_mark
from backend.storage.completions import iterate_completions
from backend.storage.engine import Sessions, is_postgres, open_engine, open_read_session, open_sessions
from backend.storage.migrate import migrate
from backend.storage.models import (
    Attempt,
    Checkpoint,
    Event,
    Experiment,
    RolloutGroup,
    Run,
)
from backend.storage.schema import read_schema
from tests.faults.audit import audit
from tests.faults.power_acts import Installation
from tests.faults.verdict import Record, Verdict, Witness, judge
from tests.stored_points import stored_points
from worker.train import Assignment, train_run

MAX_ATTEMPTS = 3
"""Maximum number of attempts until a run ends, since nothing disturbs it any more."""

Row = tuple[Any, ...]
Acknowledged = Sequence[Sequence[Any]]


def visible(sessions: Sessions) -> set[Row]:
    """Return keys of the rows that a page could show now, except those of runs that are being deleted."""
    keys: tuple[tuple[Any, ...], ...] = (
        (Experiment.id,),
        (Event.id,),
        (Attempt.run_id, Attempt.number),
        (RolloutGroup.run_id, RolloutGroup.id),
    )
    with open_read_session(sessions) as session:
        deleting_runs = set(session.scalars(select(Run.id).where(Run.deleting_at.is_not(None))))
        runs = set(session.scalars(select(Run.id))) - deleting_runs
        if deleting_runs:  # its events and experiment are also deleted
            keys = keys[2:]
        visible_rows = {
            (key[0].class_.__name__, *row) for key in keys for row in session.execute(select(*key))
        }
        visible_rows |= {
            ("Metric", run, point.name, point.step, point.attempt, repr(point.value))
            for run in session.scalars(select(Run.id)).all()
            for point in stored_points(session, run)
        }
        owners = {row.id: row.run_id for row in session.execute(select(RolloutGroup.id, RolloutGroup.run_id))}
        visible_rows |= {
            (
                "Completion",
                owners[group],
                completion.id,
                hashlib.sha256(repr(completion).encode()).hexdigest(),
            )
            for group, completions in iterate_completions(session, list(owners))
            for completion in completions
        }
        by_step = select(Checkpoint).order_by(Checkpoint.step)
        newest_checkpoints = {row.run_id: row.path for row in session.scalars(by_step)}
    visible_rows = {row for row in visible_rows if not deleting_runs.intersection(row)}
    return (
        visible_rows
        | {("Run", run_id) for run_id in runs}
        | {("Checkpoint", *checkpoint) for checkpoint in newest_checkpoints.items()}
    )


def check(
    installation: Installation, visible_rows: Collection[Row], acknowledged: Acknowledged, reference: Record
) -> dict[str, Any]:
    """Return what is wrong after the cut, as the fields of a `Verdict`."""
    installation.in_environment()
    verdict = Verdict()
    try:
        acknowledged_schema = {
            acknowledgement[0]: acknowledgement[1:] for acknowledgement in acknowledged
        }.get("schema")
        if acknowledged_schema and _schema(installation) != acknowledged_schema[0]:
            verdict.sentences.append(f"acknowledged but not so: schema {acknowledged_schema[0]}")
        sessions = _start(installation)
        lost_sentences = [
            *verdict.sentences,
            *_lost_rows(sessions, visible_rows),
            *_lost(installation, sessions, acknowledged),
        ]
        _seal(sessions)
        lost_sentences += [] if lost_sentences else _lost_rows(sessions, visible_rows)
        verdict = _ended(installation, sessions, reference)
        verdict.sentences = lost_sentences + verdict.sentences
        verdict.lost += len(lost_sentences)
    except (CannotStart, GrpoLabError, SQLAlchemyError) as error:
        verdict.sentences.append(f"does not go on: {error}")
        verdict.lost += 1
    return asdict(verdict)


def _schema(installation: Installation) -> str:
    engine = open_engine(installation.settings.effective_database_url)
    try:
        with engine.connect() as connection:
            return read_schema(connection)
    except SQLAlchemyError as error:
        return str(error)
    finally:
        engine.dispose()


def _start(installation: Installation) -> Sessions:
    settings = installation.settings
    check_state_dir(settings)
    if (mark := restore_mark(settings)).exists():
        assert mark.read_text().strip(), "a mark of a restore that names nothing"
        restore_backup(settings, installation.backups / "monday", overwrite=True)
    check_database(settings)
    migrate(settings)
    Uploads(settings.datasets_dir).sweep()
    return open_sessions(open_engine(settings.effective_database_url))


def _seal(sessions: Sessions) -> None:
    """Finish the sealing that a cut has interrupted."""
    while True:
        with open_read_session(sessions) as session:
            tasks = find_sealable(session)
        if not tasks:
            break
        deque(seal(sessions, tasks), maxlen=0)


def _lost_rows(sessions: Sessions, visible_rows: Collection[Row]) -> list[str]:
    with open_read_session(sessions) as session:
        missing_rows = set(visible_rows) - visible(sessions)
        stored_checkpoints = {(row.run_id, row.path) for row in session.scalars(select(Checkpoint))}
    missing_rows = {
        row for row in missing_rows if row[0] != "Checkpoint" or row[1:] not in stored_checkpoints
    }
    return [f"lost: {row}" for row in sorted(missing_rows, key=str)[:5]] + ["lost: more"] * max(
        len(missing_rows) - 5, 0
    )


def _lost(installation: Installation, sessions: Sessions, acknowledged: Acknowledged) -> list[str]:
    """Return sentences about acknowledgements that do not hold, using the last one per object."""
    last = {tuple(acknowledgement[:2]): acknowledgement for acknowledgement in acknowledged}
    return [
        f"acknowledged but not so: {acknowledgement}"
        for acknowledgement in last.values()
        if not _holds(installation, sessions, acknowledgement[0], list(acknowledgement[1:]))
    ]


def _holds(installation: Installation, sessions: Sessions, kind: str, details: list[Any]) -> bool:
    settings = installation.settings
    uploads = Uploads(settings.datasets_dir)
    with open_read_session(sessions) as session:
        run = session.get(Run, details[0]) if details else None
        runs = set(session.scalars(select(Run.id)))
        match kind:
            case "schema":
                return True  # it was opened before the start upgraded it
            case "token":
                return read_or_create_token(settings, Role.OPERATOR) == str(details[0])
            case "upload":
                is_there = uploads.find(details[0]) is not None
                return details[1] is None or is_there == bool(details[1])
            case "run":
                return runs.issuperset(details)
            case "notes":
                return run is not None and run.notes == details[1]
            case "trashed":
                return run is None or run.deleted_at is not None
            case "status":
                return run is not None and run.status == details[1]
            case "deleting":
                return run is None or run.deleting_at is not None
            case "gone":
                return run is None and not settings.artifact_dir(details[0]).exists()
            case "sealed":
                steps = select(Attempt.packed_step).where(Attempt.run_id == details[0])
                return bool(session.scalars(steps).one() >= details[1])
            case "restored":
                return len(runs) == 2
        verify(installation.backups / details[0], read_manifest(installation.backups / details[0]))
        return True


def _ended(installation: Installation, sessions: Sessions, reference: Record) -> Verdict:
    """Finish deletions and the run of the training act, then audit."""
    settings = installation.settings
    continue_deletions(sessions, settings, seconds=60)
    for name in ("monday", "tuesday"):  # a published directory is complete, acknowledged or not
        if (installation.backups / name).exists():
            verify(installation.backups / name, read_manifest(installation.backups / name))
    trained_runs = _train_to_the_end(sessions, settings) if reference else []
    findings = audit(sessions, settings.state)
    with open_read_session(sessions) as session:
        assert is_postgres(session) == (installation.database == "postgres")
        return judge(session, Witness(), dict.fromkeys(trained_runs, reference), findings)


def _train_to_the_end(sessions: Sessions, settings: Settings) -> list[str]:
    with sessions.begin() as session:
        for run in session.scalars(select(Run).where(Run.status == "running")).all():
            lifecycle.release_run(session, run.id, run.attempt, "the power was cut")
        runs = list(session.scalars(select(Run.id).where(Run.seed == 1)))
    for _ in range(MAX_ATTEMPTS):
        with sessions.begin() as session:
            claim = lifecycle.claim_run(session, "w", "h")
        if claim is None:
            break
        url = settings.effective_database_url
        train_run(Assignment(claim.run_id, claim.attempt, "cpu", 1, url), threading.Event())
    return runs
