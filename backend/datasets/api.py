"""Routes of data sets: what there is, upload, deletion."""

import asyncio
import errno
import re
from collections.abc import AsyncGenerator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import contextmanager_in_threadpool, run_in_threadpool
from pydantic import BaseModel
from starlette.requests import ClientDisconnect

from backend.config.rows import Columns
from backend.datasets.checking import place_upload
from backend.datasets.files import Draft, OwnFile, Upload, Uploads, own_files
from backend.datasets.unpacking import KINDS, kind_of
from backend.datasets.users import runs_that_need
from backend.db.text import clean_text
from backend.errors import Conflict, FieldError, GrpoLabError, InvalidRequest, NotFound
from backend.http.dependencies import SettingsOf, WriteSession
from backend.http.paging import iso
from backend.http.problem_details import ERRORS
from backend.http.responses import Json
from backend.http.timeout import take_time
from backend.redaction import refuse_secrets

router = APIRouter(prefix="/api/v1/datasets", tags=["datasets"], responses=ERRORS)

TYPES = (
    "application/gzip", "application/jsonl", "application/octet-stream", "application/x-gzip",
    "application/x-ndjson", "application/zstd",
)  # fmt: skip
SHA256 = re.compile(r"[0-9a-f]{64}")
MOST_LISTED = 1000
GATHERED_BYTES = 1 << 20
SILENCE_SECONDS = 30.0
"""How long a client may send nothing in the middle of an upload."""
CHECK_SECONDS = 900.0
"""How long a client waits while every line of a large file is checked."""

Field = Annotated[str, Query(min_length=1, max_length=128)]


class DatasetItem(BaseModel):
    """A data set that a run's `file` problem may name."""

    path: str
    """What the problem's `path` is set to."""
    name: str
    """The label it was uploaded with; of the operator's own files the path."""
    bytes: int
    changed_at: str
    sha256: str | None
    """Of the content; null for the operator's own files, which may change."""
    rows: int | None


class DatasetPage(BaseModel):
    """Every data set of this installation."""

    items: list[DatasetItem]
    next: str | None
    most_bytes: int
    """Size of the largest file that may be uploaded, packed and unpacked."""


class TooLarge(GrpoLabError):
    """More was sent than is accepted."""

    status = 413
    title = "Too large"


class WrongType(GrpoLabError):
    """The body is something else."""

    status = 415
    title = "Unsupported media type"


class CutOff(GrpoLabError):
    """The client went away in the middle."""

    status = 400
    title = "Bad request"


class CannotStore(GrpoLabError):
    """The disk of DATASETS_DIR takes nothing more."""

    status = 507
    title = "Insufficient storage"


@router.get("", response_model=DatasetPage)
def list_all(settings: SettingsOf) -> Json:
    """Uploads, newest first, then the files of DATASETS_DIR by name."""
    uploads = [shown_upload(upload) for upload in Uploads(settings.datasets_dir).all()[:MOST_LISTED]]
    own = own_files(settings.datasets_dir, most=MOST_LISTED)
    items = [*uploads, *map(_shown_file, own)]
    return Json({"items": items, "next": None, "most_bytes": settings.upload_bytes})


@router.post(
    "",
    status_code=201,
    response_model=DatasetItem,
    responses={200: {"description": "The same content was already uploaded", "model": DatasetItem}},
    openapi_extra={"requestBody": {"required": True, "content": {kind: {} for kind in TYPES}}},
)
async def upload(
    request: Request,
    settings: SettingsOf,
    name: Annotated[
        str, Query(min_length=1, max_length=200, description="A label; its extension says the format.")
    ],
    prompt_field: Field = "prompt",
    answer_field: Field = "answer",
) -> Json:
    """Keep a JSONL file (plain, .gz or .zst) that is the body as it is. Every line is checked first."""
    refuse_secrets(name, "name")
    kind = _checked_kind(name)
    _check_type(request)
    uploads, columns = Uploads(settings.datasets_dir), Columns(prompt_field, answer_field)
    most_bytes = settings.upload_bytes
    try:
        await run_in_threadpool(uploads.sweep)
        async with contextmanager_in_threadpool(uploads.draft()) as packed:
            await _receive(request, packed, most_bytes)
            take_time(CHECK_SECONDS)
            place = partial(place_upload, name=name, kind=kind, columns=columns, most_bytes=most_bytes)
            found, is_new = await run_in_threadpool(place, uploads, packed)
    except ClientDisconnect:
        raise CutOff("the connection closed before the upload was complete; nothing was stored") from None
    except OSError as error:
        raise CannotStore(_storage_reason(error, settings.datasets_dir)) from None
    return Json(shown_upload(found), 201 if is_new else 200)


@router.delete("/{sha256}", response_model=DatasetItem)
def delete(sha256: str, session: WriteSession, settings: SettingsOf) -> Json:
    """Remove an upload, unless a run that is not finished trains on it."""
    uploads = Uploads(settings.datasets_dir)
    found = uploads.find(sha256) if SHA256.fullmatch(sha256) else None
    if found is None:
        raise NotFound(f"there is no uploaded data set {sha256!r}")
    if users := runs_that_need(session, found.sha256):
        raise Conflict(f"{found.name!r} is used by {', '.join(users)}: wait until they end, or delete them")
    uploads.remove(found.sha256)
    return Json(shown_upload(found))


def shown_upload(upload: Upload) -> dict[str, Any]:
    """An upload as the HTTP interface shows it: DatasetItem."""
    return {
        "path": upload.path,
        "name": upload.name,
        "bytes": upload.bytes,
        "changed_at": iso(upload.uploaded_at),
        "sha256": upload.sha256,
        "rows": upload.rows,
    }


def _shown_file(file: OwnFile) -> dict[str, Any]:
    shown = {"path": file.path, "name": file.path, "bytes": file.bytes, "changed_at": iso(file.changed_at)}
    return shown | {"sha256": None, "rows": None}


def _checked_kind(name: str) -> str:
    if name != clean_text(name):
        raise InvalidRequest([FieldError("name", "contains NUL or an unpaired surrogate")])
    if (kind := kind_of(name)) is None:
        reason = f"must end with {', '.join(KINDS[:-1])} or {KINDS[-1]} (no archives), got {name[-40:]!r}"
        raise InvalidRequest([FieldError("name", reason)])
    return kind


def _check_type(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in TYPES:
        raise WrongType(
            f"Content-Type: application/x-ndjson or application/octet-stream is expected, got {kind!r}"
        )


async def _receive(request: Request, draft: Draft, most_bytes: int) -> None:
    """The body into the draft; what arrives is counted, whatever the client said its length is."""
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > most_bytes:
        raise TooLarge(f"at most {most_bytes:,} bytes are allowed")
    seen, gathered, pieces = 0, bytearray(), request.stream()
    while piece := await _next(pieces):
        seen += len(piece)
        if seen > most_bytes:
            raise TooLarge(f"at most {most_bytes:,} bytes are allowed")
        gathered += piece
        if len(gathered) >= GATHERED_BYTES:
            await run_in_threadpool(draft.file.write, bytes(gathered))
            gathered.clear()
    await run_in_threadpool(draft.file.write, bytes(gathered))
    await run_in_threadpool(draft.file.flush)


async def _next(pieces: AsyncGenerator[bytes, None]) -> bytes:
    """The next piece of the body; empty at its end."""
    try:
        async with asyncio.timeout(SILENCE_SECONDS):
            return await anext(pieces, b"")
    except TimeoutError:
        raise CutOff(f"no data arrived for {SILENCE_SECONDS:.0f} seconds; nothing was stored") from None


def _storage_reason(error: OSError, directory: object) -> str:
    words = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the quota is exceeded"}
    reason = words.get(error.errno or 0, error.strerror or str(error))
    return f"cannot write to DATASETS_DIR ({directory}): {reason}; nothing was stored"
