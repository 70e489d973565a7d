"""Storage of uploaded datasets as `uploads/<sha256 of the content>.jsonl` in DATASETS_DIR.

The name that a user gives is stored in `<sha256>.json` next to the file and never becomes part of a path. A
file gets its final name when it is complete and checked. Until then it is a draft, which is locked by the
process that writes it. The next upload removes the drafts of processes that have died.
"""

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple

from pydantic import BaseModel

from backend.base.durable_files import make_directory, sync
from backend.base.text import clean_text
from backend.catalog.datasets.guess import ColumnMapping

UPLOADS_DIRECTORY = "uploads"
DRAFT_PREFIX = ".draft-"
LOCK_NAME = ".lock"


class Upload(BaseModel):
    """The description of an uploaded dataset."""

    sha256: str
    name: str
    """Name that the user gave to the upload."""
    rows: int
    bytes: int
    uploaded_at: float
    """Time of the upload, in seconds since 1970."""
    mapping: ColumnMapping | None = None
    """Columns that were checked, or null for an upload of an old version that did not store them."""

    @property
    def path(self) -> str:
        """Path of the file, relative to DATASETS_DIR."""
        return f"{UPLOADS_DIRECTORY}/{self.sha256}.jsonl"


class OperatorFile(NamedTuple):
    """A file that the operator has placed in DATASETS_DIR."""

    path: str
    bytes: int
    changed_at: float


class Draft(NamedTuple):
    """A file that is being written or checked."""

    path: Path
    file: IO[bytes]


class Uploads:
    """The directory of uploads."""

    def __init__(self, datasets_dir: Path) -> None:
        self._directory = datasets_dir.expanduser().absolute() / UPLOADS_DIRECTORY

    @contextmanager
    def draft(self) -> Iterator[Draft]:
        """Yield a new file, which is removed after the `with` block unless `keep` has stored it.

        If the process is killed, the next upload removes it.
        """
        make_directory(self._directory, mode=0o750)
        with self._hold_lock():
            draft = self._new_draft()
        try:
            with draft.file:
                yield draft
        finally:
            draft.path.unlink(missing_ok=True)

    def store(self, draft: Draft, upload: Upload) -> tuple[Upload, bool]:
        """Store a checked draft, and return the upload and whether it is new.

        If the same content is already stored, its name does not change, and the stored upload is returned
        with the columns of the draft.
        """
        draft.file.flush()
        os.fsync(draft.file.fileno())
        with self._hold_lock():
            if (stored_upload := self.find(upload.sha256)) is not None:
                # the process that stored the file may have died before it wrote the label
                sync(self._directory)
                return stored_upload.model_copy(update={"mapping": upload.mapping}), False
            label = self._new_draft()
            try:
                with label.file:
                    label.file.write(upload.model_dump_json().encode())
                    label.file.flush()
                    os.fsync(label.file.fileno())
                    draft.path.replace(self._file(upload.sha256))
                    label.path.replace(self._label(upload.sha256))
            finally:
                label.path.unlink(missing_ok=True)
            sync(self._directory)
        return upload, True

    def _new_draft(self) -> Draft:
        """Create and lock a file. The caller must hold the lock of the directory."""
        descriptor, name = tempfile.mkstemp(dir=self._directory, prefix=DRAFT_PREFIX)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        return Draft(Path(name), os.fdopen(descriptor, "w+b"))

    def find(self, sha256: str) -> Upload | None:
        """Return the upload with this content, or None if it does not exist."""
        try:
            label = json.loads(self._label(sha256).read_bytes())
        except (OSError, ValueError):
            return None
        return Upload.model_validate(label) if self._file(sha256).is_file() else None

    def list_all(self) -> list[Upload]:
        """Return all uploads, newest first."""
        names = (path.stem for path in self._directory.glob("*.json"))
        uploads = [upload for name in names if (upload := self.find(name)) is not None]
        return sorted(uploads, key=lambda upload: upload.uploaded_at, reverse=True)

    def remove(self, sha256: str) -> None:
        """Remove an upload. Do nothing if it does not exist."""
        with self._hold_lock():
            self._label(sha256).unlink(missing_ok=True)
            self._file(sha256).unlink(missing_ok=True)
            sync(self._directory)

    def sweep(self) -> None:
        """Remove files of dead processes: drafts, files without a label, and labels without a file."""
        if not self._directory.is_dir():
            return
        with self._hold_lock():
            for path in self._directory.glob(f"{DRAFT_PREFIX}*"):
                _remove_if_free(path)
            for path in (*self._directory.glob("*.jsonl"), *self._directory.glob("*.json")):
                if self.find(path.stem) is None:
                    path.unlink(missing_ok=True)

    def _file(self, sha256: str) -> Path:
        return self._directory / f"{sha256}.jsonl"

    def _label(self, sha256: str) -> Path:
        return self._directory / f"{sha256}.json"

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Hold the exclusive lock of the directory, which also excludes other machines that share it."""
        with (self._directory / LOCK_NAME).open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _remove_if_free(path: Path) -> None:
    with suppress(OSError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()


def operator_files(datasets_dir: Path, *, limit: int) -> list[OperatorFile]:
    """Return the first `limit` JSONL files of the operator, without uploads."""
    root = datasets_dir.expanduser().resolve()
    return sorted(islice(_own_files(root), limit))


def _own_files(root: Path) -> Iterator[OperatorFile]:
    for directory, folders, names in os.walk(root):
        folders[:] = [name for name in folders if Path(directory, name) != root / UPLOADS_DIRECTORY]
        for path in (Path(directory, name) for name in names if name.endswith(".jsonl")):
            relative_path = path.relative_to(root).as_posix()
            if (
                relative_path == clean_text(relative_path)
                and path.is_file()
                and path.resolve().is_relative_to(root)
            ):
                status = path.stat()
                yield OperatorFile(relative_path, status.st_size, status.st_mtime)
