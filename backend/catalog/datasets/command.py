"""The command `upload`, which stores a local file as a dataset in DATASETS_DIR."""

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from backend.base.errors import FieldError, InvalidRequest
from backend.base.settings import Settings
from backend.base.text import clean_text
from backend.catalog.datasets.checking import preview_upload, store_upload
from backend.catalog.datasets.files import Draft, Upload, Uploads
from backend.catalog.datasets.guess import ColumnMapping
from backend.catalog.datasets.kinds import file_kind
from backend.catalog.datasets.preview import DatasetPreview


def upload_file(settings: Settings, path: Path, *, dry_run: bool, columns: dict[str, str]) -> Iterator[str]:
    """Check and store a file, and yield its first rows and the config of a problem that uses it.

    Raises InvalidRequest if the file cannot be read or stored.
    """
    _check_columns(columns)
    name = clean_text(path.name)[:200]
    kind = file_kind(name)
    uploads = Uploads(settings.datasets_dir)
    try:
        uploads.sweep()
        with path.open("rb") as file:
            draft = Draft(path, file)
            yield from _preview_lines(
                preview_upload(draft, name=name, kind=kind, columns=columns, is_cut=False)
            )
            if dry_run:
                return
            limit = settings.upload_bytes
            dataset, is_new = store_upload(
                uploads, draft, name=name, kind=kind, columns=columns, max_bytes=limit
            )
    except OSError as error:
        raise InvalidRequest([FieldError("file", f"{error.filename or path}: {error.strerror}")]) from None
    yield f"  {'' if is_new else 'already stored: '}{dataset.rows:,} rows in {dataset.path}"
    yield f"  problem: {json.dumps(_problem(dataset))}"


def _check_columns(columns: dict[str, str]) -> None:
    try:
        ColumnMapping.model_validate(columns)
    except ValidationError as error:
        first_error = error.errors()[0]
        raise InvalidRequest([FieldError(str(first_error["loc"][0]), first_error["msg"])]) from None


def _preview_lines(preview: DatasetPreview) -> Iterator[str]:
    if preview.mapping is None:
        yield f"  no columns were recognised among {', '.join(map(repr, preview.columns[:10]))}"
        return
    columns = preview.mapping
    yield f"  prompt: {columns.prompt_field!r}, answer: {columns.answer_field!r}"
    for row in preview.rows:
        yield f"    {row.error or f'{row.prompt[:80]!r} -> {row.answer[:40]!r}'}"
    for note in preview.notes:
        yield f"  {note}"


def _problem(upload: Upload) -> dict[str, str]:
    """Return the config of a problem that uses the upload, without default values."""
    mapping = upload.mapping or ColumnMapping()
    return {"name": "file", "path": upload.path, **mapping.model_dump(exclude_defaults=True)}
