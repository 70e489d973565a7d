"""Create the archive of a run, even while it trains: tables in temporary files, and checkpoints directly."""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from io import BytesIO
from pathlib import Path
from typing import IO, NamedTuple

import orjson
from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.base.durable_files import make_directory
from backend.base.errors import Conflict
from backend.base.settings import Settings
from backend.exchange.archives.contents import (
    CHECKPOINT_FILE_PATTERN,
    CHECKPOINTS,
    EVENTS,
    LABELS,
    MANIFEST,
    METRICS,
    PROMPTS,
    ROLLOUTS,
    RUN,
    TABLES,
    TALLIES,
    TOKENS,
    ArchivedAttempt,
    ArchivedCheckpoint,
    ArchivedFile,
    ArchivedRun,
    Manifest,
)
from backend.exchange.archives.missing import lost_points
from backend.exchange.archives.prompt_tables import write_prompts, write_tallies
from backend.exchange.archives.tables import write_metrics, write_rollouts
from backend.exchange.archives.tar import Member, tar_stream
from backend.runs.checkpoints import load_checkpoints
from backend.runs.origin import ARCHIVE_ORIGIN
from backend.runs.schemas import MAX_NAME_CHARACTERS
from backend.storage.artifacts.reading import open_artifact, read_manifest
from backend.storage.artifacts.store import MANIFEST as CHECKPOINT_MANIFEST
from backend.storage.engine import Sessions, open_read_session
from backend.storage.models import NOT_BEGUN, Attempt, Checkpoint, Event, Experiment, Run
from backend.storage.run_lookup import require_run

MAX_MISSING = 1_000
EVENTS_AT_ONCE = 1_000


class Archive(NamedTuple):
    """An archive that is ready to be sent."""

    content: Iterator[bytes]
    missing: list[str]
    """Sentences about data that could not be read."""


def archive_run(sessions: Sessions, settings: Settings, run_id: str, *, checkpoints: bool) -> Archive:
    """Return the bytes of a run's archive, whose files are all open when this function returns.

    A running run is archived in its current state. Checkpoints that retention removes meanwhile, and damaged
    data, are left out and listed. Raise RunNotFound, and Conflict for a run that has not begun.
    """
    scratch = settings.state / "archives"
    make_directory(scratch, mode=0o700)
    with ExitStack() as open_files:
        archived_checkpoints, missing_checkpoints = (
            _checkpoints(sessions, settings, run_id, open_files) if checkpoints else ({}, [])
        )
        tables = {
            name: open_files.enter_context(_open_unnamed_file(scratch)) for name in TABLES if name != RUN
        }
        with open_read_session(sessions) as session:
            run = _run_document(
                session, run_id, [checkpoint for checkpoint, _ in archived_checkpoints.values()]
            )
        write_metrics(sessions, run_id, tables[METRICS])
        damage_notes = write_rollouts(sessions, run_id, tables[ROLLOUTS], tables[TOKENS], tables[LABELS])
        write_tallies(sessions, run_id, tables[TALLIES])
        damage_notes += write_prompts(sessions, run_id, tables[PROMPTS])
        _write_events(sessions, run_id, tables[EVENTS])
        document = orjson.dumps(run.model_dump(mode="json"), option=orjson.OPT_INDENT_2)
        members = [_member(RUN, BytesIO(document)), *(_member(name, file) for name, file in tables.items())]
        for _, files in archived_checkpoints.values():
            members += files
        missing_data = [*lost_points(sessions, run_id), *missing_checkpoints, *damage_notes][:MAX_MISSING]
        first = _manifest(run_id, members, missing_data)
        open_files.pop_all()  # the stream closes the files
        return Archive(tar_stream([first, *(member for member, _ in members)]), missing_data)


Described = tuple[Member, ArchivedFile]


def _open_unnamed_file(directory: Path) -> IO[bytes]:
    """Return a temporary file without a name, which disappears even if the process is killed."""
    return tempfile.TemporaryFile(dir=directory)


def _member(name: str, file: IO[bytes]) -> Described:
    file.seek(0)
    digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]
    size = file.seek(0, os.SEEK_END)
    return Member(name, file, size), ArchivedFile(bytes=size, sha256=digest)


def _manifest(run_id: str, members: list[Described], missing_data: list[str]) -> Member:
    try:
        program = version("grpolab")
    except PackageNotFoundError:
        program = "from a working tree"
    files = {member.name: archived_file for member, archived_file in members}
    created_at = datetime.now(UTC).isoformat(timespec="seconds")
    manifest = Manifest(program=program, created_at=created_at, run=run_id, files=files, missing=missing_data)
    content = orjson.dumps(manifest.model_dump(mode="json"), option=orjson.OPT_INDENT_2)
    return Member(MANIFEST, BytesIO(content), len(content))


def _run_document(session: Session, run_id: str, checkpoints: list[ArchivedCheckpoint]) -> ArchivedRun:
    require_run(session, run_id)
    run = session.get_one(Run, run_id)
    experiment = session.get(Experiment, run.experiment_id) if run.experiment_id else None
    query = select(Attempt).where(Attempt.run_id == run_id).order_by(Attempt.number)
    attempts = [_attempt(attempt) for attempt in session.scalars(query)]
    if not attempts:
        raise Conflict(f"run {run.name} has not begun: there is nothing to archive")
    common_names = (
        "variant",
        "seed",
        "config",
        "steps",
        "status",
        "reason",
        "last_step",
        "summary",
        "tags",
        "notes",
    )
    later_names = ("name", "fork_step", "verdict", "started_at", "finished_at")
    return ArchivedRun.model_validate(
        {
            **{name: getattr(run, name) for name in (*common_names, *later_names)},
            "name": run.name[:MAX_NAME_CHARACTERS],
            "experiment": experiment.name if experiment else "",
            "origin": "" if run.origin == ARCHIVE_ORIGIN else run.origin,
            "attempts": attempts,
            "checkpoints": checkpoints,
        }
    )


def _attempt(row: Attempt) -> ArchivedAttempt:
    from_step = None if row.from_step == NOT_BEGUN else row.from_step
    common_names = ArchivedAttempt.model_fields.keys() - {"from_step"}
    return ArchivedAttempt(from_step=from_step, **{name: getattr(row, name) for name in common_names})


def _write_events(sessions: Sessions, run_id: str, file: IO[bytes]) -> None:
    last_id = 0
    names = ("at", "kind", "level", "attempt", "step", "message", "data")
    while True:
        with open_read_session(sessions) as session:
            query = select(Event).where(Event.run_id == run_id, Event.id > last_id).order_by(Event.id)
            rows = list(session.scalars(query.limit(EVENTS_AT_ONCE)))
        for row in rows:
            file.write(orjson.dumps({name: getattr(row, name) for name in names}) + b"\n")
        if len(rows) < EVENTS_AT_ONCE:
            return
        last_id = rows[-1].id


CheckpointsFound = dict[str, tuple[ArchivedCheckpoint, list[Described]]]


def _checkpoints(
    sessions: Sessions, settings: Settings, run_id: str, open_files: ExitStack
) -> tuple[CheckpointsFound, list[str]]:
    """Return the complete checkpoints with open files and digests, and a sentence about each other one."""
    with open_read_session(sessions) as session:
        require_run(session, run_id)
        rows = sorted(load_checkpoints(session, run_id), key=lambda row: (row.step, row.attempt))
    archived_checkpoints: CheckpointsFound = {}
    missing_checkpoints = []
    for row in rows:
        files = _checkpoint_files(settings, row, open_files)
        if files:
            accuracy = row.manifest.get("accuracy")
            archived_checkpoint = ArchivedCheckpoint(
                name=row.path, step=row.step, attempt=row.attempt, sha256=row.sha256, accuracy=accuracy
            )
            archived_checkpoints[row.path] = archived_checkpoint, files
        else:
            missing_checkpoints.append(
                f"checkpoint {row.path} of step {row.step}: its files are gone or damaged"
            )
    return archived_checkpoints, missing_checkpoints


def _checkpoint_files(settings: Settings, row: Checkpoint, open_files: ExitStack) -> list[Described]:
    directory = settings.artifact_dir(row.run_id) / row.path
    try:
        content = read_manifest(settings, row)
        archived_files = {name: ArchivedFile(**entry) for name, entry in json.loads(content)["files"].items()}
        own_manifest = ArchivedFile(bytes=len(content), sha256=row.sha256)
        directory_in_archive = f"{CHECKPOINTS}/{row.path}"
        files = [
            (
                Member(f"{directory_in_archive}/{CHECKPOINT_MANIFEST}", BytesIO(content), len(content)),
                own_manifest,
            )
        ]
        for name, entry in archived_files.items():
            path = f"{directory_in_archive}/{name}"
            if not CHECKPOINT_FILE_PATTERN.fullmatch(path):
                return []
            file = open_files.enter_context(open_artifact(settings, directory / name))
            files.append((Member(path, file, entry.bytes), entry))
    except (OSError, ValueError, KeyError, TypeError):  # removed by retention, or damaged
        return []
    return files
