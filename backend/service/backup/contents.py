"""The contents of a backup: a directory that gets its final name when it is complete and on disk.

    manifest.json                     versions, schema, counts, and size and SHA-256 of every file
    database/grpolab.db               SQLite: a copy that the database made itself
    database/<table>.copy.zst         Postgres: one file per table, in the text format of COPY
    runs/<run>/<checkpoint>/...       every checkpoint with a row
    uploads/...                       uploaded datasets

A backup does not contain tokens, browser sessions, logs, sockets and locks, nor models and datasets that
users installed. It may come from an untrusted source: `files.py` restricts the names, and nothing outside the
directory is ever read or written.
"""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from backend.base.durable_files import make_directory, publish, sync
from backend.base.errors import Conflict
from backend.http.bodies import refuse_duplicates
from backend.service.backup.files import BadBackup, Digest, check_names, describe, list_files, open_below

FORMAT = 1
MANIFEST = "manifest.json"
DATABASE = "database/grpolab.db"
UPLOADS = "uploads"

MAX_MANIFEST_BYTES = 256_000_000
"""Maximum size of a manifest in bytes, which is enough for a million files."""

PICKLE_SUFFIXES = (".bin", ".ckpt", ".dll", ".dylib", ".pickle", ".pkl", ".pt", ".pth", ".py", ".pyc", ".so")
"""Suffixes of files that can contain more than tensors, which checkpoints never contain."""

_CHECKPOINT_FILE_PATTERN = re.compile(r"runs/[0-9A-Za-z_-]{1,26}/[^/.][^/]*/.+", re.DOTALL)
_UPLOAD_PATTERN = re.compile(rf"{UPLOADS}/[^/.][^/]*", re.DOTALL)


Count = Annotated[int, Field(ge=0, lt=2**63)]
Word = Annotated[str, Field(max_length=200)]


def _is_moment(text: str) -> str:
    datetime.fromisoformat(text)
    return text


class Strict(BaseModel):
    """A document without type coercion: numbers must be numbers, and texts must be texts."""

    model_config = ConfigDict(strict=True)


class SavedTable(Strict):
    """The columns and the number of rows of a saved table."""

    columns: list[Word]
    rows: Count


class Manifest(Strict):
    """The manifest of a backup, which describes its contents."""

    format: int = FORMAT
    program: Word
    python: Word = sys.version.partition(" ")[0]
    created_at: Annotated[Word, AfterValidator(_is_moment)]
    """Time in ISO 8601, by the clock of the machine that created the backup."""
    database: Word
    """Database of the installation: `sqlite` or `postgresql`."""
    schema_revision: Word
    """Schema revision of Alembic."""
    tables: dict[Word, SavedTable]
    checkpoints: Count
    files: dict[str, Digest]


def read_manifest(directory: Path) -> Manifest:
    """Return the manifest of a backup; raise BadBackup if it is invalid."""
    try:
        with open_below(directory, MANIFEST) as file:
            content = file.read(MAX_MANIFEST_BYTES + 1)
        if len(content) > MAX_MANIFEST_BYTES:
            raise BadBackup(f"the {MANIFEST} of {directory} is larger than {MAX_MANIFEST_BYTES:,} bytes")
        document = json.loads(content, object_pairs_hook=refuse_duplicates)
        if isinstance(document, dict) and (saved_format := document.get("format", FORMAT)) != FORMAT:
            raise BadBackup(
                f"{directory} has format {saved_format!r:.20}, this version reads {FORMAT}: "
                "use the version that made it"
            )
        manifest = Manifest.model_validate(document)
    except FileNotFoundError:
        raise BadBackup(f"{directory} is not a backup: it has no {MANIFEST}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadBackup(f"the {MANIFEST} of {directory} cannot be read: {_error_text(error)}") from None
    return manifest


def _error_text(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:300]
    return str(error)[:300]


def check_contents(manifest: Manifest) -> None:
    """Raise BadBackup if a file does not belong in a backup or its path cannot be restored."""
    check_names(manifest.files)
    database = {DATABASE}
    if manifest.database == "postgresql":
        database = {f"database/{name}.copy.zst" for name in manifest.tables}
    if missing_files := sorted(database - manifest.files.keys()):
        raise BadBackup(f"the backup is incomplete: {missing_files[0]} is missing")
    for name in manifest.files:
        if name.lower().endswith(PICKLE_SUFFIXES):
            raise BadBackup(
                "the backup contains a file type that checkpoints never contain, because it could run code: "
                f"{name!r:.200}"
            )
        if (
            name not in database
            and not _CHECKPOINT_FILE_PATTERN.fullmatch(name)
            and not _UPLOAD_PATTERN.fullmatch(name)
        ):
            raise BadBackup(f"the backup names a file that does not belong in a backup: {name!r:.200}")


def verify(directory: Path, manifest: Manifest) -> None:
    """Raise BadBackup unless exactly the files of the manifest exist, with unchanged contents."""
    check_contents(manifest)
    for name, expected in manifest.files.items():
        try:
            with open_below(directory, name) as file:
                described_file = describe(file)
        except OSError:  # missing, or a link, a directory or a pipe
            raise BadBackup(f"{directory} is incomplete: {name} is missing") from None
        if described_file != expected:
            raise BadBackup(f"{directory} is damaged: {name} is not the file that was saved")
    if unexpected_files := sorted(set(list_files(directory)) - manifest.files.keys() - {MANIFEST}):
        raise BadBackup(f"{directory} contains a file that is not part of it: {unexpected_files[0]!r:.200}")


@contextmanager
def open_draft(directory: Path) -> Iterator[Path]:
    """Yield a draft directory next to `directory`, which is renamed at the end, or removed after an error."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise Conflict(f"{directory} already exists: name a directory that does not exist yet")
    draft = directory.with_name(f".{directory.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)  # left behind by a backup that was killed
    try:
        make_directory(directory.parent, mode=0o700)
        draft.mkdir(mode=0o700)
        yield draft
        for path in draft.rglob("*"):
            sync(path)
        publish(draft, directory)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_json(path: Path, document: Any) -> None:
    """Write a document as indented JSON."""
    path.write_text(json.dumps(document, indent=1) + "\n")
