"""HTTP route of imports."""

import tempfile
from typing import Annotated

import orjson
from fastapi import Query, Request
from fastapi.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from backend.base.durable_files import make_directory
from backend.base.errors import FieldError, InvalidRequest
from backend.base.redaction import refuse_secrets
from backend.base.text import clean_text
from backend.exchange.imports.importing import ImportRequest
from backend.exchange.imports.plan import ROW_NUMBER
from backend.exchange.imports.run_archive.store import import_any
from backend.exchange.imports.schemas import ImportResponse
from backend.http.dependencies import LabOf
from backend.http.idempotency import Key
from backend.http.responses import Json
from backend.http.routing import Router
from backend.http.timeout import take_time
from backend.http.upload import CannotStore, CutOff, check_type, receive

router = Router(prefix="/api/v1/imports", tags=["imports"])

TYPES = ("application/octet-stream", "text/csv", "application/json", "application/x-ndjson", "text/plain")
MAX_IMPORT_SECONDS = 300.0
"""Time limit for reading and storing a log, in seconds."""
IN_MEMORY_BYTES = 8_000_000
"""Maximum size of a log that is kept in memory instead of a file, in bytes."""

Label = Annotated[str, Query(max_length=200)]


@router.post(
    "",
    status_code=201,
    response_model=ImportResponse,
    responses={200: {"description": "The report of a dry run", "model": ImportResponse}},
    openapi_extra={"requestBody": {"required": True, "content": {kind: {} for kind in TYPES}}},
)
async def create(  # noqa: PLR0913, PLR0917 - these are the query parameters
    request: Request,
    lab: LabOf,
    key: Key,
    file: Annotated[str, Query(min_length=1, max_length=200, description="Name of the file, a label.")],
    format: Annotated[str, Query(max_length=20, description="Empty: known by its content.")] = "",
    name: Annotated[str, Query(max_length=200, description="Of the run; empty: that of the log.")] = "",
    experiment: Annotated[str, Query(max_length=200, description="Empty: the name of the file.")] = "",
    variant: Annotated[str, Query(max_length=200, description="Empty: the name of the run.")] = "",
    seed: Annotated[int | None, Query(ge=0, lt=2**31)] = None,
    step: Annotated[
        str, Query(max_length=512, description="Column that counts the steps; empty: the best guess.")
    ] = "",
    runs: Annotated[
        str,
        Query(
            max_length=40_000, description="Labels of runs of the file, as a JSON list; none: all of them."
        ),
    ] = "[]",
    into: Annotated[
        str, Query(max_length=26, description="Id of an imported run that gets the completions of the file.")
    ] = "",
    mapping: Annotated[
        str, Query(max_length=40_000, description='Names by column, as JSON; the name "" leaves it out.')
    ] = "{}",
    *,
    row_numbers: Annotated[bool, Query(description="Count the rows instead, from 1.")] = False,
    dry_run: Annotated[bool, Query(description="Report what would be stored, and store nothing.")] = False,
) -> Json:
    """Create runs from a log of another trainer or an archive of this service, which is sent as the raw body.

    Supported are printed output, notebooks, HTML, CSV, JSONL, Parquet, trainer_state.json, logs of verl,
    dumps of completions, TensorBoard event files, .wandb files, Trackio databases, and archives of these.
    """
    names = _names(mapping)
    for path, text in {"file": file, "name": name, "experiment": experiment, "variant": variant}.items():
        refuse_secrets(text, path)
        if text != clean_text(text):
            raise InvalidRequest([FieldError(path, "contains NUL or an unpaired surrogate")])
    check_type(request, TYPES, expected_types="application/octet-stream")
    step_column = ROW_NUMBER if row_numbers else step or None
    requested_runs = _labels(runs)
    import_request = ImportRequest(
        file, format, name, experiment, variant, seed, step_column, names, requested_runs, into, dry_run
    )
    scratch = lab.settings.state / "imports"
    try:
        await run_in_threadpool(make_directory, scratch, mode=0o700)
        with tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES, dir=str(scratch)) as draft:
            await receive(request, draft, lab.settings.upload_bytes)
            take_time(MAX_IMPORT_SECONDS)
            answer = await run_in_threadpool(
                import_any, lab.sessions, lab.settings, draft, import_request, key=key
            )
    except ClientDisconnect:
        raise CutOff("the connection closed before the upload was complete; nothing was stored") from None
    except OSError as error:
        raise CannotStore(error, str(scratch)) from None
    return Json(answer.model_dump(mode="json"), 200 if dry_run else 201)


def _labels(runs: str) -> list[str]:
    try:
        labels = orjson.loads(runs)
    except orjson.JSONDecodeError:
        labels = None
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise InvalidRequest([FieldError("runs", "expected a JSON list of labels")])
    return labels


def _names(mapping: str) -> dict[str, str]:
    try:
        by_column = orjson.loads(mapping)
    except orjson.JSONDecodeError:
        by_column = None
    if not isinstance(by_column, dict) or not all(isinstance(name, str) for name in by_column.values()):
        raise InvalidRequest([FieldError("mapping", "expected a JSON object of names by column")])
    return by_column
