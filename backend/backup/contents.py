"""What a backup is: a directory that appears under its name only when it is complete and on disk.

    manifest.json                     versions, schema, counts, and size and SHA-256 of every file below
    database/grpolab.db               SQLite: a copy that the database made itself
    database/<table>.copy.zst         Postgres: one file per table, in the text format of COPY
    runs/<run>/<checkpoint>/...       every checkpoint that has a row
    uploads/...                       data sets that were uploaded

Tokens, logs, sockets and locks are no part of it, nor are models and data sets that users put in place.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import file_digest
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from backend.durable import make_directory, publish, sync
from backend.errors import Conflict

FORMAT = 1
MANIFEST = "manifest.json"


class BadBackup(Conflict):
    """What was given is no backup, or not whole, or not for this installation."""


class Table(BaseModel):
    """A table as it was saved."""

    columns: list[str]
    rows: int


class File(BaseModel):
    """A file as it was saved."""

    bytes: int
    sha256: str


class Manifest(BaseModel):
    """What a backup holds."""

    format: int = FORMAT
    program: str
    python: str = sys.version.partition(" ")[0]
    created_at: str
    """ISO 8601, by the clock of the machine that made it."""
    database: str
    """`sqlite` or `postgresql`."""
    schema_revision: str
    """Alembic's revision."""
    tables: dict[str, Table]
    checkpoints: int
    files: dict[str, File]


def read_manifest(directory: Path) -> Manifest:
    """Of a backup; raises BadBackup."""
    try:
        manifest = Manifest.model_validate_json((directory / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise BadBackup(f"{directory} is no backup: it has no {MANIFEST}") from None
    except (OSError, ValidationError) as error:
        raise BadBackup(f"the {MANIFEST} of {directory} cannot be read: {error}") from None
    if manifest.format != FORMAT:
        raise BadBackup(
            f"{directory} has format {manifest.format}, this version reads {FORMAT}: use the one that made it"
        )
    return manifest


def verify(directory: Path, manifest: Manifest) -> None:
    """Raise BadBackup unless every file is there and unchanged, and no other."""
    for name, expected in manifest.files.items():
        path = directory / name
        if ".." in Path(name).parts or path.is_symlink() or not path.is_file():
            raise BadBackup(f"{directory} is not whole: {name} is missing")
        if describe(path) != expected:
            raise BadBackup(f"{directory} is damaged: {name} is not the file that was saved")
    if strangers := sorted(set(files_in(directory)) - manifest.files.keys()):
        raise BadBackup(f"{directory} holds what is no part of it: {strangers[0]}")


def files_in(directory: Path) -> Iterator[str]:
    """Every file but the manifest, relative to the directory."""
    for path in sorted(directory.rglob("*")):
        if path.is_file() and path != directory / MANIFEST:
            yield path.relative_to(directory).as_posix()


def describe(path: Path) -> File:
    """Size and SHA-256."""
    with path.open("rb") as file:
        return File(bytes=path.stat().st_size, sha256=file_digest(file, "sha256").hexdigest())


def take(source: Path, target: Path) -> None:
    """Have a file in another place: a hard link, else a copy. For files that nobody ever changes in place."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        shutil.copyfile(source, target)


@contextmanager
def draft_of(directory: Path) -> Iterator[Path]:
    """A directory beside `directory` that takes its name at the end; nothing stays of it after an error."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise Conflict(f"{directory} exists already: name a directory that does not")
    draft = directory.with_name(f".{directory.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)  # of a backup that was killed
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
    """In a form that people can read."""
    path.write_text(json.dumps(document, indent=1) + "\n")
