"""Import of a run's archive: the run, its history and its checkpoints as they were, in one transaction."""

import shutil
import threading
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import IO, Any

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from backend.analysis.diagnosis.log import METRICS, Log
from backend.analysis.diagnosis.log import Series as LogSeries
from backend.analysis.diagnosis.store import columns_of, diagnosis_of
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
    blocks_of,
    is_run_archive,
    read_run_archive,
)
from backend.exchange.imports.run_archive.report import FINAL, archive_answer
from backend.exchange.imports.schemas import ImportAnswer
from backend.exchange.imports.store import Names, experiment_of, storable_config, variant_hash
from backend.exchange.imports.table import BadLog
from backend.http.idempotency import digest_of, made_before
from backend.metrics.store import write_series
from backend.rollouts.store import PackedGroups, write_groups
from backend.runs.events import add_event
from backend.runs.origin import ARCHIVED
from backend.storage.artifacts.store import ArtifactFault, artifact_store
from backend.storage.engine import Sessions, insert_into, new_id, reading
from backend.storage.faults import free_bytes
from backend.storage.models import NOT_BEGUN, Attempt, Checkpoint, Event, Experiment, RolloutLabel, Run

RESERVE_BYTES = 100_000_000
"""Left free on the disk of the checkpoints."""

_one_at_a_time = threading.Lock()
"""Logs are read meanwhile: an archive may take longer."""


def import_any(
    sessions: Sessions, settings: Settings, file: IO[bytes], request: ImportRequest, *, key: str = ""
) -> ImportAnswer:
    """Make a run of an archive of this service, or the runs of another trainer's log.

    Raises InvalidRequest for a file that cannot be imported; nothing is stored then.
    """
    if request.format or not is_run_archive(file):
        return import_log(sessions, file, request, key=key)
    if wrong := [name for name in _OF_LOGS if getattr(request, name) not in ("", None, (), [], {})]:
        reason = "is of no use for an archive of this service, which says it itself"
        raise InvalidRequest([FieldError(name, reason) for name in wrong])
    run_id = new_id()
    try:
        with _one_at_a_time:
            found = read_run_archive(file, run_id)
    except BadLog as error:
        raise InvalidRequest([FieldError("file", f"{request.file} {error}")]) from None
    except Unusable as error:
        raise Unavailable(f"archives are read in the sandbox, which does not start here: {error}") from None
    with reading(sessions) as session:
        names = _names(session, found.run, request)
    if request.dry_run:
        return archive_answer(found, names, None)
    digest = digest_of([request.file, request.name, request.experiment, request.variant, _content(found)])
    with reading(sessions) as session:
        made = made_before(session, key, digest) if key else None
    made = made or _enter(sessions, settings, file, found, names, run_id, key, digest)
    with reading(sessions) as session:  # another request with this key may have given it another name
        names = names._replace(run=session.scalar(select(Run.name).where(Run.id == made)) or names.run)
    return archive_answer(found, names, made)


_OF_LOGS = ("into", "step", "mapping", "runs", "seed")
"""Wishes that make no sense for an archive."""


def _content(found: ReadArchive) -> Any:
    return [
        found.run.model_dump(mode="json"),
        {name: len(steps) for name, (steps, _) in found.series.items()},
    ]


def _names(session: Session, run: ArchivedRun, request: ImportRequest) -> Names:
    """Names that the user gives or the archive has; a number follows where the experiment has such a run."""
    experiment = request.experiment or clean_text(run.experiment) or request.file
    query = select(Run.name).join(Experiment, Experiment.id == Run.experiment_id)
    taken = set(session.scalars(query.where(Experiment.name == experiment)))
    wanted = clean_text(run.name) or request.file
    numbered = (f"{wanted} {number}" if number > 1 else wanted for number in count(1))
    name = request.name or next(each for each in numbered if each not in taken)
    return Names(name, experiment, request.variant or clean_text(run.variant), run.seed, request.file)


def _enter(
    sessions: Sessions,
    settings: Settings,
    file: IO[bytes],
    found: ReadArchive,
    names: Names,
    run_id: str,
    key: str,
    digest: str,
) -> str:
    """Files first, then the rows, as a trainer does; after an error nothing of either stays."""
    artifacts = settings.artifacts_of(run_id)
    try:
        _write_checkpoints(file, found, artifacts)
        if (store := artifact_store(settings)) is not None:
            for name in found.checkpoints:
                store.upload(artifacts / name)
        with sessions.begin() as session:
            made = _store(session, found, names, run_id, key, digest)
    except BaseException:
        _take_back(settings, run_id)
        raise
    if made is None:  # somebody with the same key was quicker by a moment
        _take_back(settings, run_id)
        with reading(sessions) as session:
            return made_before(session, key, digest) or ""
    return made


def _take_back(settings: Settings, run_id: str) -> None:
    shutil.rmtree(settings.artifacts_of(run_id), ignore_errors=True)
    with suppress(ArtifactFault):
        if (store := artifact_store(settings)) is not None:
            store.remove_run(run_id)


def _write_checkpoints(file: IO[bytes], found: ReadArchive, artifacts: Path) -> None:
    needed = sum(place.size for files in found.checkpoints.values() for place in files.values())
    if not needed:
        return
    make_directory(artifacts)
    free = free_bytes(artifacts)
    if free is not None and free < needed + RESERVE_BYTES:
        raise Unavailable(
            f"the checkpoints need {size_text(needed)}, and {size_text(free)} are free on {artifacts}"
        )
    for name, files in found.checkpoints.items():
        draft = artifacts / f".{name}.draft"
        for path, place in files.items():
            _write(file, place, draft / path)
        for each in draft.rglob("*"):
            sync(each)
        publish(draft, artifacts / name)


def _write(file: IO[bytes], place: FileExtent, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as copy:
        for block in blocks_of(file, place):
            copy.write(block)


def _store(
    session: Session, found: ReadArchive, names: Names, run_id: str, key: str, digest: str
) -> str | None:
    """Enter everything; the run's id, or None where there is a run with this idempotency key."""
    run = found.run
    experiment = experiment_of(session, names)
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
        "origin": run.origin or ARCHIVED,
        "origin_file": names.file,
        "idempotency_key": key or None,
        "request_hash": digest if key else None,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        **_config(run, experiment, names),
        **_status(run),
        **_verdict(found, names),
    }
    statement = insert_into(session, Run).values(**row).on_conflict_do_nothing()
    made: str | None = session.scalar(statement.returning(Run.id))
    if made is None:
        return None
    _store_history(session, found, run_id)
    _store_rollouts(session, found, run_id)
    session.add_all(_checkpoint_rows(found, run_id))
    values = sum(len(steps) for steps, _ in found.series.values())
    what = f"{values:,} values of {len(found.series)} metrics"
    message = f"imported from an archive of GRPO Lab, {names.file}: {what}"
    data = {"to": _status(run)["status"], "file": names.file}
    add_event(session, "lifecycle", message, run_id=run_id, data=data)
    for each in found.missing:
        missing = f"missing in the archive: {clean_text(each)}"
        add_event(session, "data", missing, run_id=run_id, level="warning")
    return made


def _store_rollouts(session: Session, found: ReadArchive, run_id: str) -> None:
    """Prompts before the groups, whose own ones then stay away, and labels behind their completions."""
    if (beside := found.beside) is not None:
        write_groups(session, PackedGroups(prompts=beside.prompts))
        for rows in beside.tallies.rows(run_id):
            write_groups(session, PackedGroups(tallies=rows))
    for packed in found.rollouts:
        write_groups(session, packed)
    if beside is not None and beside.labels:
        ids = [ids for packed in found.rollouts for ids in packed.rollouts]
        session.execute(insert(RolloutLabel), label_rows(beside.labels, ids, run_id))


def _config(run: ArchivedRun, experiment: str, names: Names) -> dict[str, Any]:
    if not run.origin:
        return {"config": run.config, "config_hash": config_hash(RunConfig.model_validate(run.config))}
    return {"config": storable_config(run.config)[0], "config_hash": variant_hash(experiment, names.variant)}


def _status(run: ArchivedRun) -> dict[str, Any]:
    """The status as it was; a run that had not ended goes on where it is, and never here."""
    if run.status in FINAL:
        return {"status": run.status, "reason": clean_text(run.reason)}
    return {"status": "stopped", "reason": f"was {run.status} when it was archived"}


def _verdict(found: ReadArchive, names: Names) -> dict[str, Any]:
    """The columns of its diagnosis, made anew: the archive's own word proves nothing."""
    run = found.run
    if not run.last_step or not run.steps:
        return columns_of(None, run.last_step)
    series = {name: LogSeries(*found.series[name]).thinned() for name in METRICS if name in found.series}
    config = run.config if not run.origin else {}
    log = Log(series, config, _status(run)["status"], _status(run)["reason"])
    return columns_of(diagnosis_of(log, names.run), run.last_step)


def _store_history(session: Session, found: ReadArchive, run_id: str) -> None:
    for each in found.run.attempts:
        from_step = NOT_BEGUN if each.from_step is None else each.from_step
        same = each.model_dump(exclude={"from_step"})
        session.add(Attempt(run_id=run_id, worker_id="", from_step=from_step, **same))
    session.flush()
    parts: dict[int, dict[str, Any]] = {}
    for name, (steps, values) in found.series.items():
        numbers = attempt_at(found.run.attempts, steps)
        for number in dict.fromkeys(numbers.tolist()):
            own = numbers == number
            parts.setdefault(number, {})[name] = steps[own], values[own]
    for number, series in sorted(parts.items()):
        write_series(session, run_id, number, series)
    if found.events:
        rows = [{"run_id": run_id, **each._asdict()} for each in found.events]
        session.execute(insert(Event), [_redacted(row) for row in rows])


def _redacted(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "message": redact(row["message"]), "data": redact_document(row["data"])}


def _checkpoint_rows(found: ReadArchive, run_id: str) -> Iterable[Checkpoint]:
    for each in found.run.checkpoints:
        files = found.checkpoints[each.name]
        yield Checkpoint(
            run_id=run_id,
            step=each.step,
            attempt=each.attempt,
            path=each.name,
            sha256=each.sha256,
            bytes_total=sum(place.size for place in files.values()),
            manifest={"files": sorted(files), "accuracy": each.accuracy},
        )
