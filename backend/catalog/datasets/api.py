"""Routes to list, preview, upload, compare and delete datasets."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Query, Request
from fastapi.concurrency import contextmanager_in_threadpool, run_in_threadpool
from starlette.requests import ClientDisconnect

from backend.base.documented import Documented
from backend.base.errors import Conflict, NotFound
from backend.base.settings import Settings
from backend.catalog.datasets.checking import preview_upload, store_upload
from backend.catalog.datasets.files import Draft, OperatorFile, Upload, Uploads, operator_files
from backend.catalog.datasets.guess import MAX_NAME_CHARACTERS, ColumnMapping
from backend.catalog.datasets.kinds import file_kind
from backend.catalog.datasets.preview import DatasetPreview
from backend.catalog.datasets.repeats import Repeats, find_repeats
from backend.catalog.datasets.users import runs_using
from backend.config.columns import AnswerForm
from backend.http.dependencies import SettingsOf, WriteSession
from backend.http.paging import iso_time
from backend.http.responses import Json
from backend.http.routing import Router
from backend.http.timeout import take_time
from backend.http.upload import CannotStore, CutOff, check_type, receive

router = Router(prefix="/api/v1/datasets", tags=["datasets"])

UPLOAD_TYPES = (
    "application/gzip", "application/jsonl", "application/octet-stream", "application/vnd.apache.parquet",
    "application/x-gzip", "application/x-ndjson", "application/zstd", "text/csv",
)  # fmt: skip
SHA256_PATTERN = re.compile(r"[0-9a-f]{64}")
MAX_LISTED = 1000
MAX_CHECK_SECONDS = 900.0
"""Time limit of a request that checks every line of a large file, in seconds."""

Name = Annotated[
    str, Query(min_length=1, max_length=200, description="File name, whose extension defines the format.")
]
Column = Annotated[str | None, Query(min_length=1, max_length=MAX_NAME_CHARACTERS)]


def _named_fields(
    prompt_field: Column = None,
    answer_field: Column = None,
    answer_after: Annotated[str | None, Query(max_length=32)] = None,
    answer_form: AnswerForm | None = None,
) -> dict[str, str]:
    """Return the columns that the request names. The others are guessed."""
    columns = {
        "prompt_field": prompt_field,
        "answer_field": answer_field,
        "answer_after": answer_after,
        "answer_form": answer_form,
    }
    return {name: value for name, value in columns.items() if value is not None}


Named = Annotated[dict[str, str], Depends(_named_fields)]


class DatasetItem(Documented):
    """A dataset that a problem of the kind `file` can use."""

    path: str
    """Value for the `path` of the problem."""
    name: str
    """Name with which the file was uploaded, or the path of an operator's file."""
    bytes: int
    changed_at: str
    sha256: str | None
    """SHA-256 of the content, or null for an operator's file, which may change."""
    rows: int | None
    mapping: ColumnMapping | None
    """Columns of the upload, for the config of the problem, or null for an operator's file."""


class DatasetPage(Documented):
    """All datasets of this installation."""

    items: list[DatasetItem]
    next: str | None
    max_bytes: int
    """Maximum size of an uploaded file in bytes, both compressed and decompressed."""


@router.get("", response_model=DatasetPage)
def list_all(settings: SettingsOf) -> Json:
    """List the uploads, newest first, and then the operator's files in DATASETS_DIR by name."""
    uploads = [upload_json(upload) for upload in Uploads(settings.datasets_dir).list_all()[:MAX_LISTED]]
    files = operator_files(settings.datasets_dir, limit=MAX_LISTED)
    items = [*uploads, *map(_file_json, files)]
    return Json({"items": items, "next": None, "max_bytes": settings.upload_bytes})


@router.post(
    "",
    status_code=201,
    response_model=DatasetItem,
    responses={200: {"description": "The same content was already uploaded", "model": DatasetItem}},
    openapi_extra={"requestBody": {"required": True, "content": {kind: {} for kind in UPLOAD_TYPES}}},
)
async def upload(
    request: Request,
    settings: SettingsOf,
    name: Name,
    named: Named,
) -> Json:
    """Upload the body as a dataset: JSONL (plain, .gz or .zst), Parquet or CSV. Every row is checked.

    Parquet and CSV are stored as JSONL. Columns that are not named are guessed.
    """
    kind = file_kind(name)
    async with _receive_draft(request, settings) as (uploads, draft):
        store = partial(store_upload, name=name, kind=kind, columns=named, max_bytes=settings.upload_bytes)
        stored_upload, is_new = await run_in_threadpool(store, uploads, draft)
    return Json(upload_json(stored_upload) | _mapping_json(stored_upload.mapping), 201 if is_new else 200)


@router.post(
    "/preview",
    response_model=DatasetPreview,
    openapi_extra={"requestBody": {"required": True, "content": {kind: {} for kind in UPLOAD_TYPES}}},
)
async def preview(
    request: Request,
    settings: SettingsOf,
    *,
    name: Name,
    named: Named,
    cut: Annotated[bool, Query(description="The body is the beginning of a file, cut anywhere.")] = False,
) -> Json:
    """Return three rows of a file as a problem would use them. Nothing is stored.

    Columns that are not named are guessed.
    """
    kind = file_kind(name)
    async with _receive_draft(request, settings) as (_, draft):
        read_preview = partial(preview_upload, name=name, kind=kind, columns=named, is_cut=cut)
        rows_shown = await run_in_threadpool(read_preview, draft)
    return Json(rows_shown.model_dump(mode="json"))


@asynccontextmanager
async def _receive_draft(request: Request, settings: Settings) -> AsyncGenerator[tuple[Uploads, Draft]]:
    """Receive the body of a request into a draft, which exists inside the `with` block."""
    check_type(request, UPLOAD_TYPES, expected_types="application/x-ndjson or application/octet-stream")
    uploads = Uploads(settings.datasets_dir)
    try:
        await run_in_threadpool(uploads.sweep)
        async with contextmanager_in_threadpool(uploads.draft()) as draft:
            await receive(request, draft.file, settings.upload_bytes)
            take_time(MAX_CHECK_SECONDS)
            yield uploads, draft
    except ClientDisconnect:
        raise CutOff("the connection closed before the upload was complete; nothing was stored") from None
    except OSError as error:
        raise CannotStore(error, f"DATASETS_DIR ({settings.datasets_dir})") from None


@router.post("/{sha256}/repeats", response_model=Repeats)
def repeats(sha256: str, settings: SettingsOf) -> Json:
    """Count the rows of an upload that repeat other rows or held-out rows, which may take minutes."""
    uploads = Uploads(settings.datasets_dir)
    dataset = _find_upload(uploads, sha256)
    take_time(MAX_CHECK_SECONDS)
    return Json(
        find_repeats(dataset, settings.datasets_dir.expanduser().absolute() / dataset.path).model_dump()
    )


@router.delete("/{sha256}", response_model=DatasetItem)
def delete(sha256: str, session: WriteSession, settings: SettingsOf) -> Json:
    """Delete an upload, unless an unfinished run uses it."""
    uploads = Uploads(settings.datasets_dir)
    dataset = _find_upload(uploads, sha256)
    if users := runs_using(session, dataset.sha256):
        raise Conflict(f"{dataset.name!r} is used by {', '.join(users)}: wait until they end, or delete them")
    uploads.remove(dataset.sha256)
    return Json(upload_json(dataset))


def _find_upload(uploads: Uploads, sha256: str) -> Upload:
    dataset = uploads.find(sha256) if SHA256_PATTERN.fullmatch(sha256) else None
    if dataset is None:
        raise NotFound(f"there is no uploaded dataset {sha256!r}")
    return dataset


def upload_json(upload: Upload) -> dict[str, Any]:
    """Return an upload as the JSON of a DatasetItem."""
    return {
        "path": upload.path,
        "name": upload.name,
        "bytes": upload.bytes,
        "changed_at": iso_time(upload.uploaded_at),
        "sha256": upload.sha256,
        "rows": upload.rows,
        **_mapping_json(upload.mapping),
    }


def _mapping_json(mapping: ColumnMapping | None) -> dict[str, Any]:
    return {"mapping": mapping and mapping.model_dump()}


def _file_json(file: OperatorFile) -> dict[str, Any]:
    item = {
        "path": file.path,
        "name": file.path,
        "bytes": file.bytes,
        "changed_at": iso_time(file.changed_at),
    }
    return item | {"sha256": None, "rows": None, "mapping": None}
