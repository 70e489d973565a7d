"""Artifact store: a copy of every checkpoint at ARTIFACTS_URL, in S3 or another storage that fsspec reaches.

    <ARTIFACTS_URL>/<run id>/<checkpoint>/<file>

A checkpoint is complete there once its manifest.json is, which is written last and removed first. What comes
back is hostile until its manifest has the SHA-256 of the checkpoint's row.
"""

import errno
import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, cast

from backend.artifacts.names import CHECKPOINT_NAME, FILE_NAME
from backend.db.faults import free_bytes
from backend.db.text import size_text
from backend.durable_files import make_directory, publish, sync
from backend.errors import GrpoLabError
from backend.redaction import redact
from backend.settings import Settings

STORAGE_VARIABLES = ("AWS_", "AZURE_", "FSSPEC_", "GOOGLE_")
"""Beginnings of the environment variables from which storages take keys, regions and endpoints."""

MANIFEST = "manifest.json"

RUN = re.compile(r"[A-Za-z0-9][\w-]{0,63}")

MOST_MANIFEST_BYTES = 4_000_000
MOST_FILES = 10_000

BLOCK_BYTES = 8 * 2**20
"""Read at a time of a file that is streamed."""

RESERVE_BYTES = 8_000_000
"""Left free on the disk beside a checkpoint that is fetched."""

OF_THIS_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}

REASON_CHARACTERS = 300


class ArtifactFault(GrpoLabError):
    """The artifact store cannot be reached, or refuses, or holds something else than a checkpoint."""

    status = 503
    title = "Artifact store"


class ArtifactStore:
    """The copies of the checkpoints of the state directory `state`, at an address that fsspec knows."""

    def __init__(self, url: str, state: Path) -> None:
        """Connects to nothing yet. Raises ArtifactFault where the address cannot be understood."""
        import fsspec  # a fifth of a second, which most installations need not wait

        self.url, self.root, self._locks = url.rstrip("/"), state / "runs", state / "run"
        local = {"auto_mkdir": True} if url.startswith("file://") else {}
        with self._reaching():
            self._files, self._base = fsspec.core.url_to_fs(
                self.url, skip_instance_cache=True, use_listings_cache=False, **local
            )

    def listing(self, run_id: str) -> dict[str, bool]:
        """The checkpoints of a run that are there by name, and whether each is complete."""
        base = self._run(run_id)
        with self._reaching():
            try:
                paths: list[str] = self._files.find(base)
            except FileNotFoundError:
                return {}
        names = [path[len(base) + 1 :].split("/", 1) for path in paths if path.startswith(f"{base}/")]
        found: dict[str, bool] = {}
        for checkpoint, *file in names:
            if CHECKPOINT_NAME.fullmatch(checkpoint):
                found[checkpoint] = found.get(checkpoint, False) or file == [MANIFEST]
        return found

    def upload(self, directory: Path) -> None:
        """Copy a complete checkpoint, over one of that name. Raises ArtifactFault."""
        target = self._key(directory)
        with self._reaching():
            try:
                names = list(json.loads((directory / MANIFEST).read_bytes())["files"])
                sources = [str(directory / name) for name in names]
                self._files.put(sources, [f"{target}/{name}" for name in names])
                self._files.put_file(str(directory / MANIFEST), f"{target}/{MANIFEST}")
            except FileNotFoundError as error:  # there is no such bucket, or retention was quicker
                raise self._fault(str(error)) from error

    def fetch(self, directory: Path) -> bool:
        """Bring a checkpoint to this machine, unless its directory is there; False: the store has none.

        Raises ArtifactFault, and OSError when this disk takes no more.
        """
        run_directory = directory.parent
        make_directory(run_directory)
        make_directory(self._locks)
        with _alone(self._locks / f"fetch-{run_directory.name}.lock"):
            if directory.is_dir():
                return True
            with self._reaching():
                try:
                    manifest = self._content(f"{self._key(directory)}/{MANIFEST}")
                except FileNotFoundError:
                    return False
                self._fetch(directory, manifest)
        return True

    def _fetch(self, directory: Path, manifest: bytes) -> None:
        sizes = _sizes(manifest)
        if sizes is None:
            raise self._fault(f"{directory.name}/{MANIFEST} names no files of a checkpoint")
        free, needed = free_bytes(directory.parent), sum(sizes.values()) + RESERVE_BYTES
        if free is not None and free < needed:
            raise OSError(errno.ENOSPC, f"checkpoint {directory.name} needs {size_text(needed)}")
        source, draft = self._key(directory), directory.with_name(f".{directory.name}.fetch")
        for name, size in sizes.items():
            if (there := self._files.size(f"{source}/{name}")) != size:
                raise self._fault(f"{directory.name}/{name} has {there} bytes in place of {size}")
        for leftover in directory.parent.glob(".*.fetch"):
            shutil.rmtree(leftover)
        (draft / "trainer").mkdir(parents=True)
        try:
            for name in sizes:
                self._files.get_file(f"{source}/{name}", str(draft / name))
            (draft / MANIFEST).write_bytes(manifest)
            for path in (*draft.rglob("*"), draft):
                sync(path)
            publish(draft, directory)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise

    def open(self, path: Path) -> IO[bytes]:
        """A file of a checkpoint, read piece by piece; raises FileNotFoundError and ArtifactFault.

        The errors of later reads are the file system's own.
        """
        with self._reaching():
            file = self._files.open(self._key(path), "rb", block_size=BLOCK_BYTES, cache_type="readahead")
        return cast("IO[bytes]", file)

    def size(self, path: Path) -> int:
        """Bytes of such a file; raises FileNotFoundError and ArtifactFault."""
        with self._reaching():
            return int(self._files.size(self._key(path)))

    def remove_checkpoint(self, run_id: str, name: str) -> None:
        """Remove one, its manifest first: half of one is never taken for a whole. Raises ArtifactFault."""
        if not CHECKPOINT_NAME.fullmatch(name):
            raise self._fault(f"{name!r:.60} is no name of a checkpoint")
        place = f"{self._run(run_id)}/{name}"
        self._remove(f"{place}/{MANIFEST}")
        self._remove(place)

    def remove_run(self, run_id: str) -> None:
        """Remove all that is there of a run. Raises ArtifactFault."""
        self._remove(self._run(run_id))

    def try_out(self) -> None:
        """Write, read and remove a few bytes; raises ArtifactFault."""
        path, content = f"{self._base}/.probe-{secrets.token_hex(8)}", secrets.token_bytes(16)
        with self._reaching():
            try:
                self._files.pipe_file(path, content)
                found = self._files.cat_file(path)
                self._files.rm_file(path)
            except FileNotFoundError as error:  # there is no such bucket
                raise self._fault(str(error)) from error
        if found != content:
            raise self._fault("it gives back other bytes than it was given")

    def _remove(self, path: str) -> None:
        """Remove a file, or a directory with all that is in it, where it is there."""
        with self._reaching(), suppress(FileNotFoundError):
            self._files.rm(path, recursive=True)

    def _content(self, key: str) -> bytes:
        """A small file; raises FileNotFoundError."""
        size = self._files.size(key)
        if size is None or size > MOST_MANIFEST_BYTES:
            raise self._fault(f"{key.rpartition('/')[2]} has {size} bytes, too many")
        return bytes(self._files.cat_file(key))

    def _run(self, run_id: str) -> str:
        if not RUN.fullmatch(run_id):
            raise self._fault(f"{run_id!r:.60} is no id of a run")
        return f"{self._base.rstrip('/')}/{run_id}"

    def _key(self, path: Path) -> str:
        """Where the copy of a path of this machine is."""
        run_id, *names = path.relative_to(self.root).parts
        if ".." in names:
            raise self._fault(f"{path.name!r:.60} is no file of a checkpoint")
        return "/".join([self._run(run_id), *names])

    def _fault(self, reason: str) -> ArtifactFault:
        return ArtifactFault(f"artifact store {self.url}: {reason}")

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """All that goes wrong there becomes ArtifactFault; what is missing stays FileNotFoundError."""
        try:
            yield
        except (FileNotFoundError, GrpoLabError):
            raise
        except Exception as error:  # botocore's, aiohttp's, of each storage its own
            if isinstance(error, OSError) and error.errno in OF_THIS_DISK:
                raise
            words = str(error).strip().partition("\n")[0] or type(error).__name__
            raise self._fault(redact(words)[:REASON_CHARACTERS]) from error


def artifact_store(settings: Settings) -> ArtifactStore | None:
    """The store of this installation; None without ARTIFACTS_URL. Raises ArtifactFault."""
    if not settings.artifacts_url:
        return None
    return _store(settings.artifacts_url, settings.state, os.getpid())


@lru_cache(maxsize=8)
def _store(url: str, state: Path, _process: int) -> ArtifactStore:
    """One for each process: connections do not survive a fork."""
    return ArtifactStore(url, state)


def open_artifact(settings: Settings, path: Path) -> IO[bytes]:
    """A file of a checkpoint, from this machine or else from the store.

    Raises FileNotFoundError and other errors of the disk, and ArtifactFault.
    """
    try:
        return path.open("rb")
    except FileNotFoundError:
        if (store := artifact_store(settings)) is None:
            raise
    return store.open(path)


def blocks_of(file: IO[bytes]) -> Iterator[bytes]:
    """The content of an open file, which is closed at the end."""
    with file:
        while block := file.read(BLOCK_BYTES):
            yield block


def _sizes(manifest: bytes) -> dict[str, int] | None:
    """Bytes of each file that a manifest names; None where that is no manifest of ours."""
    try:
        files: dict[Any, Any] = json.loads(manifest)["files"]
        sizes = {name: entry["bytes"] for name, entry in files.items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    is_ours = 0 < len(sizes) <= MOST_FILES and all(
        FILE_NAME.fullmatch(name) and name != MANIFEST and type(size) is int and 0 <= size < 2**50
        for name, size in sizes.items()
    )
    return sizes if is_ours else None


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the lock file `path`, alone; the end of a process frees it."""
    while True:
        with path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is(path, file):
                continue  # whoever held it has removed it since
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _is(path: Path, file: IO[bytes]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
