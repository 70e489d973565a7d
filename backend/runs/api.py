"""HTTP routes of a single run: its state, its actions, its checkpoints, files, events and logs."""

from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal

from fastapi import BackgroundTasks, Query
from starlette.responses import FileResponse, Response, StreamingResponse

from backend.base.errors import FieldError, InvalidRequest, NotFound
from backend.base.settings import Settings
from backend.http.dependencies import Lab, LabOf, ReadSession, SettingsOf, WriteSession
from backend.http.idempotency import Key
from backend.http.paging import iso_time, make_page, read_cursor
from backend.http.responses import Cursor, Json, Limit, Page
from backend.http.routing import Router
from backend.runs import lifecycle
from backend.runs.checkpoints import load_checkpoints
from backend.runs.children import ChildRequest, queue_child
from backend.runs.deletion import begin_deletion, empty_trash
from backend.runs.events import event_json, load_events
from backend.runs.queue.doorbell import ring
from backend.runs.schemas import (
    CloneRequest,
    CopyPage,
    EmptiedTrash,
    EvaluationRequest,
    ForkCheckRequest,
    ForkRequest,
    RunChanges,
    RunItem,
)
from backend.runs.store import (
    change_run,
    find_run,
    load_log_chunks,
    restore_run,
    trash_run,
)
from backend.storage.artifacts.copies import Copies
from backend.storage.artifacts.reading import read_blocks
from backend.storage.artifacts.store import MANIFEST, artifact_store
from backend.storage.engine import open_read_session
from backend.storage.models import Checkpoint, LogChunk
from backend.storage.run_lookup import require_run

BINARY = "application/octet-stream"

router = Router(prefix="/api/v1/runs", tags=["runs"])


@router.get("/{run_id}", response_model=RunItem, response_model_exclude_unset=True)
def show(run_id: str, session: ReadSession) -> Json:
    """Return a run with its config and its attempts."""
    return Json(find_run(session, run_id))


@router.patch("/{run_id}", response_model=RunItem, response_model_exclude_unset=True)
def change(run_id: str, body: RunChanges, session: WriteSession) -> Json:
    """Change the name, tags, notes or priority of a run, or archive or unarchive it."""
    changes = body.model_dump(exclude_unset=True)
    if null_fields := [name for name, value in changes.items() if value is None]:
        raise InvalidRequest([FieldError(name, "must not be null") for name in null_fields])
    change_run(session, run_id, changes)
    return Json(find_run(session, run_id))


@router.delete("", status_code=202, response_model=EmptiedTrash)
def empty(session: WriteSession, *, forever: bool) -> Json:
    """Delete all runs in the trash permanently, which the request must confirm with `forever=true`.

    A run that is still training, or whose checkpoints other runs start from, stays in the trash.
    """
    if not forever:
        raise InvalidRequest(
            [FieldError("forever", "must be true: emptying the trash deletes runs permanently")]
        )
    deleted_runs, kept_runs = empty_trash(session)
    return Json({"deleted": deleted_runs, "kept": kept_runs}, 202)


@router.delete("/{run_id}", response_model=RunItem, response_model_exclude_unset=True)
def trash(run_id: str, session: WriteSession, *, forever: bool = False) -> Json:
    """Move a run to the trash: a running run is asked to stop, and a queued run does not start.

    With `forever`, delete a run in the trash permanently. The answer is 202, and the rows and files are
    removed in the background.
    """
    if forever:
        run = find_run(session, run_id)
        begin_deletion(session, run_id)
        return Json(run, 202)
    trash_run(session, run_id)
    return Json(find_run(session, run_id))


@router.post("/{run_id}/restore", response_model=RunItem, response_model_exclude_unset=True)
def restore(run_id: str, session: WriteSession, settings: SettingsOf, later: BackgroundTasks) -> Json:
    """Restore a run from the trash."""
    restore_run(session, run_id)
    later.add_task(ring, settings)
    return Json(find_run(session, run_id), background=later)


@router.post("/{run_id}/stop", status_code=202, response_model=RunItem, response_model_exclude_unset=True)
def stop(run_id: str, session: WriteSession) -> Json:
    """Stop a run: a queued run at once, a running run after its current step, with a checkpoint."""
    lifecycle.request_action(session, run_id, "stop")
    return Json(find_run(session, run_id), 202)


@router.post("/{run_id}/pause", status_code=202, response_model=RunItem, response_model_exclude_unset=True)
def pause(run_id: str, session: WriteSession) -> Json:
    """Pause a run until it is resumed; a running run saves a checkpoint first."""
    lifecycle.request_action(session, run_id, "pause")
    return Json(find_run(session, run_id), 202)


@router.post("/{run_id}/resume", status_code=202, response_model=RunItem, response_model_exclude_unset=True)
def resume(run_id: str, session: WriteSession, settings: SettingsOf, later: BackgroundTasks) -> Json:
    """Continue a paused or stopped run from its newest checkpoint, or withdraw a pending stop or pause."""
    lifecycle.resume_run(session, run_id)
    later.add_task(ring, settings)
    return Json(find_run(session, run_id), 202, background=later)


@router.post("/{run_id}/retry", status_code=202, response_model=RunItem, response_model_exclude_unset=True)
def retry(run_id: str, session: WriteSession, settings: SettingsOf, later: BackgroundTasks) -> Json:
    """Retry a failed or stopped run from its newest checkpoint."""
    lifecycle.retry_run(session, run_id)
    later.add_task(ring, settings)
    return Json(find_run(session, run_id), 202, background=later)


@router.post("/{run_id}/clone", status_code=202, response_model=RunItem, response_model_exclude_unset=True)
def clone(
    run_id: str, lab: LabOf, later: BackgroundTasks, key: Key, body: CloneRequest | None = None
) -> Json:
    """Queue a new run with the same config and the requested changes; it belongs to no experiment."""
    return _queued_child(lab, later, run_id, body or CloneRequest(), key)


@router.post("/{run_id}/fork", status_code=202, response_model=RunItem, response_model_exclude_unset=True)
def fork(run_id: str, lab: LabOf, later: BackgroundTasks, key: Key, body: ForkRequest) -> Json:
    """Queue a new run that continues from a checkpoint of this run with the requested config changes.

    The fork restores the complete state: optimizer, random numbers, position in the data, controllers and
    critic. Without changes it repeats what this run did after that step. It shares the curves of this run up
    to that step.
    """
    return _queued_child(lab, later, run_id, body, key)


@router.post(
    "/{run_id}/evaluations", status_code=202, response_model=RunItem, response_model_exclude_unset=True
)
def evaluate(
    run_id: str, lab: LabOf, later: BackgroundTasks, key: Key, body: EvaluationRequest | None = None
) -> Json:
    """Queue a run without steps that evaluates one checkpoint of this run."""
    return _queued_child(lab, later, run_id, body or EvaluationRequest(), key)


@router.post("/{run_id}/check", status_code=202, response_model=RunItem, response_model_exclude_unset=True)
def check_fork(
    run_id: str, lab: LabOf, later: BackgroundTasks, key: Key, body: ForkCheckRequest | None = None
) -> Json:
    """Queue a run without steps that checks a fork of this run before its launch.

    It tries the policy of the checkpoint; otherwise it works like `POST /experiments/check`.
    """
    return _queued_child(lab, later, run_id, body or ForkCheckRequest(), key)


def _queued_child(lab: Lab, later: BackgroundTasks, run_id: str, request: ChildRequest, key: str) -> Json:
    """Queue a child of the run and return it; a repeated request with the same key returns the same run."""
    new_id = queue_child(lab, run_id, request, key=key)
    later.add_task(ring, lab.settings)
    with open_read_session(lab.sessions) as session:
        return Json(find_run(session, new_id), 202, background=later)


@router.get("/{run_id}/checkpoints", response_model=Page)
def checkpoints(run_id: str, session: ReadSession) -> Json:
    """List the checkpoints of a run, newest first; each is a directory that `from_pretrained` opens."""
    require_run(session, run_id)
    return Json({"items": [_checkpoint_json(row) for row in load_checkpoints(session, run_id)], "next": None})


def _checkpoint_json(row: Checkpoint) -> dict[str, Any]:
    files = row.manifest.get("files", [])
    return {
        "id": row.id,
        "name": row.path,
        "step": row.step,
        "attempt": row.attempt,
        "bytes": row.bytes_total,
        "sha256": row.sha256,
        "accuracy": row.manifest.get("accuracy"),
        "kept_for": row.kept_for,
        "onset": row.onset,
        "created_at": iso_time(row.created_at),
        "files": [{"name": f"{row.path}/{name}"} for name in files],
    }


@router.get("/{run_id}/checkpoints/copies", response_model=CopyPage)
def checkpoint_copies(run_id: str, lab: LabOf) -> Json:
    """Report which checkpoints of a run are on this machine, in the artifact store or both.

    The answer is 503 if the artifact store does not respond.
    """
    with open_read_session(lab.sessions) as session:
        require_run(session, run_id)
        names = [row.path for row in load_checkpoints(session, run_id)]
    root, copies = lab.settings.artifact_dir(run_id), Copies(lab.settings)
    items = [
        {"name": name, "is_here": (root / name / MANIFEST).is_file(), "is_copied": copies.has(run_id, name)}
        for name in names
    ]
    return Json({"items": items, "next": None, "has_store": bool(lab.settings.artifacts_url)})


@router.get("/{run_id}/files/{name:path}", response_class=FileResponse)
def download(run_id: str, name: str, session: ReadSession, settings: SettingsOf) -> Response:
    """Download a file of a checkpoint by the name that `/checkpoints` lists."""
    require_run(session, run_id)
    rows = load_checkpoints(session, run_id)
    if name not in {f"{row.path}/{file}" for row in rows for file in row.manifest.get("files", [])}:
        raise NotFound(f"run {run_id!r} has no file {name!r}")
    root = settings.artifact_dir(run_id)
    path = (root / name).resolve()
    if not path.is_relative_to(root.resolve()):
        raise NotFound(f"the file {name!r} is no longer there")
    if path.is_file():
        return FileResponse(path, media_type=BINARY, filename=PurePosixPath(name).name)
    return _stream_from_store(settings, root / name, name)


def _stream_from_store(settings: Settings, path: Path, name: str) -> StreamingResponse:
    """Stream a file from the artifact store in blocks; raise NotFound if the store does not have it."""
    gone = NotFound(f"the file {name!r} is no longer there")
    if (store := artifact_store(settings)) is None:
        raise gone
    try:
        size, file = store.size(path), store.open(path)
    except FileNotFoundError:
        raise gone from None
    headers = {
        "Content-Length": str(size),
        "Content-Disposition": f'attachment; filename="{PurePosixPath(name).name}"',
    }
    return StreamingResponse(read_blocks(file), media_type=BINARY, headers=headers)


@router.get("/{run_id}/events", response_model=Page)
def events(
    run_id: str,
    session: ReadSession,
    order: Literal["asc", "desc"] = "asc",
    limit: Limit = 100,
    cursor: Cursor = "",
) -> Json:
    """List the events of a run, oldest or newest first."""
    require_run(session, run_id)
    after_key = read_cursor(cursor, int, order=order, largest=2**63)
    last_id = after_key[0] if after_key else None
    rows = load_events(session, run_id, after_id=last_id, limit=limit + 1, backwards=order == "desc")
    return Json(make_page(rows, limit, event_json, lambda event: (event.id,), order=order))


@router.get("/{run_id}/logs", response_model=Page)
def logs(
    run_id: str,
    session: ReadSession,
    attempt: Annotated[int | None, Query(ge=0, le=2**31 - 1)] = None,
    order: Literal["asc", "desc"] = "asc",
    limit: Limit = 50,
    cursor: Cursor = "",
) -> Json:
    """List the chunks of the trainer's output, oldest or newest first."""
    require_run(session, run_id)
    last_key = read_cursor(cursor, int, int, order=order)
    rows = load_log_chunks(
        session, run_id, attempt=attempt, after_key=last_key, limit=limit, backwards=order == "desc"
    )
    return Json(make_page(rows, limit, _chunk_json, lambda chunk: (chunk.attempt, chunk.number), order=order))


def _chunk_json(chunk: LogChunk) -> dict[str, Any]:
    return {"attempt": chunk.attempt, "number": chunk.number, "at": iso_time(chunk.at), "text": chunk.text}
