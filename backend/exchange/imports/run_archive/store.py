"""Import of a run's archive: restore the run, its history and its checkpoints in one transaction."""

import shutil
import threading
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import IO, Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from backend.analysis.diagnosis.log import Log, is_read
from backend.analysis.diagnosis.log import Series as LogSeries
from backend.analysis.diagnosis.store import make_columns, try_diagnosis
from backend.base.durable_files import make_directory, publish, sync
from backend.base.errors import FieldError, InvalidRequest, Unavailable
from backend.base.redaction import redact, redact_document
from backend.base.sandbox.errors import Unusable
from backend.base.settings import Settings
from backend.base.text import clean_text, size_text
from backend.config.merge import config_hash
from backend.config.run import RunConfig
from backend.exchange.archives.contents import ArchivedRun
from backend.exchange.imports.importing import ImportRequest, import_log
from backend.exchange.imports.run_archive.prompts import label_rows
from backend.exchange.imports.run_archive.read import (
    FileExtent,
    ReadArchive,
    attempt_at,
    is_run_archive,
    read_blocks,
    read_run_archive,
)
from backend.exchange.imports.run_archive.report import FINAL_STATUSES, archive_answer
from backend.exchange.imports.schemas import ImportResponse
from backend.exchange.imports.store import Names, find_or_create_experiment, storable_config, variant_hash
from backend.exchange.imports.table import BadLog
from backend.http.idempotency import find_previous, request_digest
from backend.metrics.store import write_series
from backend.rollouts.store import PackedGroups, write_groups
from backend.runs.events import add_event
from backend.runs.origin import ARCHIVE_ORIGIN
from backend.storage.artifacts.store import ArtifactFault, artifact_store
from backend.storage.engine import Sessions, insert_into, new_id, open_read_session
from backend.storage.faults import free_bytes
from backend.storage.models import NOT_BEGUN, Attempt, Checkpoint, Event, Experiment, RolloutLabel, Run

RESERVE_BYTES = 100_000_000
"""Bytes that stay free on the disk of the checkpoints."""

_one_at_a_time = threading.Lock()
"""Imports one archive at a time; logs can be imported meanwhile, since an archive may take longer."""


def import_any(
    sessions: Sessions, settings: Settings, file: IO[bytes], request: ImportRequest, *, key: str = ""
) -> ImportResponse:
    """Create a run from an archive of this service, or runs from the log of another trainer.

    Raises InvalidRequest for a file that cannot be imported; then nothing is stored.
    """
    if request.format or not is_run_archive(file):
        return import_log(sessions, file, request, key=key)
    if inapplicable_fields := [
        name for name in _LOG_PARAMETERS if getattr(request, name) not in ("", None, (), [], {})
    ]:
        reason = "does not apply to an archive of this service, which contains it"
        raise InvalidRequest([FieldError(name, reason) for name in inapplicable_fields])
    run_id = new_id()
    try:
        with _one_at_a_time:
            archive = read_run_archive(file, run_id)
    except BadLog as error:
        raise InvalidRequest([FieldError("file", f"{request.file} {error}")]) from None
    except Unusable as error:
        raise Unavailable(f"archives are read in the sandbox, which does not start here: {error}") from None
    with open_read_session(sessions) as session:
        names = _names(session, archive.run, request)
    if request.dry_run:
        return archive_answer(archive, names, None)
    digest = request_digest(
        [request.file, request.name, request.experiment, request.variant, _content(archive)]
    )
    with open_read_session(sessions) as session:
        created_id = find_previous(session, key, digest) if key else None
    created_id = created_id or _enter(sessions, settings, file, archive, names, run_id, key, digest)
    with open_read_session(
        sessions
    ) as session:  # an earlier request with this key may have used another name
        names = names._replace(run=session.scalar(select(Run.name).where(Run.id == created_id)) or names.run)
    return archive_answer(archive, names, created_id)


_LOG_PARAMETERS = ("into", "step", "mapping", "runs", "seed")
"""Parameters that do not apply to an archive."""


def _content(archive: ReadArchive) -> Any:
    return [
        archive.run.model_dump(mode="json"),
        {name: len(steps) for name, (steps, _) in archive.series.items()},
    ]


def _names(session: Session, run: ArchivedRun, request: ImportRequest) -> Names:
    """Return the names from the user or the archive; add a number if that name is taken."""
    experiment = request.experiment or clean_text(run.experiment) or request.file
    query = select(Run.name).join(Experiment, Experiment.id == Run.experiment_id)
    taken_names = set(session.scalars(query.where(Experiment.name == experiment)))
    wanted_name = clean_text(run.name) or request.file
    candidates = (f"{wanted_name} {number}" if number > 1 else wanted_name for number in count(1))
    name = request.name or next(candidate for candidate in candidates if candidate not in taken_names)
    return Names(name, experiment, request.variant or clean_text(run.variant), run.seed, request.file)


def _enter(
    sessions: Sessions,
    settings: Settings,
    file: IO[bytes],
    archive: ReadArchive,
    names: Names,
    run_id: str,
    key: str,
    digest: str,
) -> str:
    """Write the files first and then the rows, as a trainer does; remove everything after an error."""
    artifacts = settings.artifact_dir(run_id)
    try:
        _write_checkpoints(file, archive, artifacts)
        if (store := artifact_store(settings)) is not None:
            for name in archive.checkpoints:
                store.upload(artifacts / name)
        with sessions.begin() as session:
            created_id = _store(session, archive, names, run_id, key, digest)
    except BaseException:
        _take_back(settings, run_id)
        raise
    if created_id is None:  # a concurrent request with the same key was faster
        _take_back(settings, run_id)
        with open_read_session(sessions) as session:
            return find_previous(session, key, digest) or ""
    return created_id


def _take_back(settings: Settings, run_id: str) -> None:
    shutil.rmtree(settings.artifact_dir(run_id), ignore_errors=True)
    with suppress(ArtifactFault):
        if (store := artifact_store(settings)) is not None:
            store.remove_run(run_id)


def _write_checkpoints(file: IO[bytes], archive: ReadArchive, artifacts: Path) -> None:
    needed_bytes = sum(extent.size for files in archive.checkpoints.values() for extent in files.values())
    if not needed_bytes:
        return
    make_directory(artifacts)
    available_bytes = free_bytes(artifacts)
    if available_bytes is not None and available_bytes < needed_bytes + RESERVE_BYTES:
        raise Unavailable(
            f"the checkpoints need {size_text(needed_bytes)}, "
            f"and {size_text(available_bytes)} are free on {artifacts}"
        )
    for name, files in archive.checkpoints.items():
        draft = artifacts / f".{name}.draft"
        for path, extent in files.items():
            _write(file, extent, draft / path)
        for draft_path in draft.rglob("*"):
            sync(draft_path)
        publish(draft, artifacts / name)


def _write(file: IO[bytes], extent: FileExtent, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as copy:
        for block in read_blocks(file, extent):
            copy.write(block)


def _store(
    session: Session, archive: ReadArchive, names: Names, run_id: str, key: str, digest: str
) -> str | None:
    """Insert everything and return the run's id; None if there is a run with this idempotency key."""
    run = archive.run
    experiment = find_or_create_experiment(session, names)
    row = {
        "id": run_id,
        "name": names.run,
        "experiment_id": experiment,
        "variant": names.variant,
        "seed": names.seed,
        "steps": run.steps,
        "last_step": run.last_step,
        "attempt": run.attempts[-1].number,
        "summary": run.summary.model_dump(exclude=None if run.summary.older else {"older"}),
        "tags": run.tags,
        "notes": run.notes,
        "fork_step": run.fork_step,
        "origin": run.origin or ARCHIVE_ORIGIN,
        "origin_file": names.file,
        "idempotency_key": key or None,
        "request_hash": digest if key else None,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        **_config(run, experiment, names),
        **_status(run),
        **_verdict(archive, names),
    }
    statement = insert_into(session, Run).values(**row).on_conflict_do_nothing()
    created_id: str | None = session.scalar(statement.returning(Run.id))
    if created_id is None:
        return None
    _store_history(session, archive, run_id)
    _store_rollouts(session, archive, run_id)
    session.add_all(_checkpoint_rows(archive, run_id))
    values = sum(len(steps) for steps, _ in archive.series.values())
    content = f"{values:,} values of {len(archive.series)} metrics"
    message = f"imported from an archive of GRPO Lab, {names.file}: {content}"
    data = {"to": _status(run)["status"], "file": names.file}
    add_event(session, "lifecycle", message, run_id=run_id, data=data)
    for sentence in archive.missing:
        missing_note = f"missing in the archive: {clean_text(sentence)}"
        add_event(session, "data", missing_note, run_id=run_id, level="warning")
    return created_id


def _store_rollouts(session: Session, archive: ReadArchive, run_id: str) -> None:
    """Insert prompts before groups, so that these do not insert their own, and labels after completions."""
    extras = archive.extras
    write_groups(session, PackedGroups(prompts=extras.prompts))
    for rows in extras.tallies.rows(run_id):
        write_groups(session, PackedGroups(tallies=rows))
    for groups in archive.rollouts:
        write_groups(session, groups)
    if extras.labels:
        ids = [ids for groups in archive.rollouts for ids in groups.rollouts]
        session.execute(insert(RolloutLabel), label_rows(extras.labels, ids, run_id))


def _config(run: ArchivedRun, experiment: str, names: Names) -> dict[str, Any]:
    if not run.origin:
        return {"config": run.config, "config_hash": config_hash(RunConfig.model_validate(run.config))}
    return {"config": storable_config(run.config)[0], "config_hash": variant_hash(experiment, names.variant)}


def _status(run: ArchivedRun) -> dict[str, Any]:
    """Return the archived status; a run that had not ended is stopped here."""
    if run.status in FINAL_STATUSES:
        return {"status": run.status, "reason": clean_text(run.reason)}
    return {"status": "stopped", "reason": f"was {run.status} when it was archived"}


def _verdict(archive: ReadArchive, names: Names) -> dict[str, Any]:
    """Return the columns of the diagnosis, computed again because the archived one is not trusted."""
    run = archive.run
    if not run.last_step or not run.steps:
        return make_columns(None, run.last_step)
    series = {name: LogSeries(*archive.series[name]).thinned() for name in archive.series if is_read(name)}
    config = run.config if not run.origin else {}
    log = Log(series, config, _status(run)["status"], _status(run)["reason"])
    return make_columns(try_diagnosis(log, names.run), run.last_step)


def _store_history(session: Session, archive: ReadArchive, run_id: str) -> None:
    for attempt in archive.run.attempts:
        from_step = NOT_BEGUN if attempt.from_step is None else attempt.from_step
        same_fields = attempt.model_dump(exclude={"from_step"})
        session.add(Attempt(run_id=run_id, worker_id="", from_step=from_step, **same_fields))
    session.flush()
    series_by_attempt: dict[int, dict[str, Any]] = {}
    for name, (steps, values) in archive.series.items():
        numbers = attempt_at(archive.run.attempts, steps)
        for number in dict.fromkeys(numbers.tolist()):
            is_of_attempt = numbers == number
            series_by_attempt.setdefault(number, {})[name] = steps[is_of_attempt], values[is_of_attempt]
    for number, series in sorted(series_by_attempt.items()):
        write_series(session, run_id, number, series)
    if archive.events:
        rows = [{"run_id": run_id, **event._asdict()} for event in archive.events]
        session.execute(insert(Event), [_redact_row(row) for row in rows])


def _redact_row(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "message": redact(row["message"]), "data": redact_document(row["data"])}


def _checkpoint_rows(archive: ReadArchive, run_id: str) -> Iterable[Checkpoint]:
    for checkpoint in archive.run.checkpoints:
        files = archive.checkpoints[checkpoint.name]
        yield Checkpoint(
            run_id=run_id,
            step=checkpoint.step,
            attempt=checkpoint.attempt,
            path=checkpoint.name,
            sha256=checkpoint.sha256,
            bytes_total=sum(extent.size for extent in files.values()),
            manifest={"files": sorted(files), "accuracy": checkpoint.accuracy},
        )
