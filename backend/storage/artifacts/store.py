"""The artifact store, which holds a copy of every checkpoint in S3 or another storage that fsspec supports.

    <ARTIFACTS_URL>/<run id>/<checkpoint>/<file>

A checkpoint in the store is complete if it has a manifest.json, which is written last and removed first.
Fetched files are untrusted until the manifest matches the SHA-256 in the checkpoint's row. Every call has a
time limit.
"""

import errno
import fcntl
import io
import json
import os
import re
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import IO, Any, cast

from backend.base.durable_files import make_directory, publish, sync
from backend.base.errors import GrpoLabError
from backend.base.redaction import redact
from backend.base.settings import Settings
from backend.base.text import size_text
from backend.storage.artifacts.names import CHECKPOINT_NAME_PATTERN, FILE_NAME_PATTERN
from backend.storage.artifacts.responses import BLOCK_BYTES, BadResponse
from backend.storage.faults import free_bytes

MANIFEST = "manifest.json"

STORAGE_VARIABLES = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"),
    *("AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ROLE_", "AWS_WEB_IDENTITY_", "AWS_CONTAINER_"),
    *("AWS_CA_BUNDLE", "AWS_REQUEST_CHECKSUM_", "AWS_RESPONSE_CHECKSUM_", "AZURE_STORAGE_", "AZURE_CLIENT_"),
    *("AZURE_TENANT_ID", "FSSPEC_", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT"),
)
"""Prefixes of the environment variables that configure the keys, regions and endpoints of storages."""

RUN_ID_PATTERN = re.compile(r"[A-Za-z0-9][\w-]{0,63}")

MAX_MANIFEST_BYTES = 4_000_000
MAX_FILES = 10_000


RESERVE_BYTES = 8_000_000
"""Free disk space to leave in addition to a fetched checkpoint, in bytes."""

CALL_SECONDS = 60.0
"""Time limit of a call that transfers little data, in seconds. `_seconds_for` adds time for a file."""

MIN_BYTES_PER_SECOND = 2_000_000.0
"""Minimum transfer rate. A slower storage is treated as unavailable."""

S3_OPTIONS: dict[str, Any] = {
    "max_concurrency": 2,  # number of parts of 50 MB that are in memory at a time
    "config_kwargs": {"connect_timeout": 5, "read_timeout": 15, "retries": {"max_attempts": 1}},
}

MAX_REASON_CHARACTERS = 300


class ArtifactFault(GrpoLabError):
    """The artifact store cannot be reached or refuses a request."""

    status = 503
    title = "Artifact store"


class BadCopy(ArtifactFault):
    """The copy in the artifact store is not a complete checkpoint."""


class ArtifactStore:
    """The copies of the checkpoints in a state directory, at an address that fsspec supports."""

    def __init__(self, url: str, state: Path) -> None:
        """Create the store without connecting. Raises ArtifactFault if the address cannot be parsed."""
        import fsspec  # takes a fifth of a second, and most installations do not need it

        self.url, self.root, self._locks = url.rstrip("/"), state / "runs", state / "run"
        self._is_local, self._is_s3 = url.startswith("file://"), url.startswith("s3://")
        self._one_call: Callable[[], AbstractContextManager[None]] = nullcontext
        with self._translate_errors():
            options = {"auto_mkdir": True} if self._is_local else self._s3_options()
            self._files, base = fsspec.core.url_to_fs(
                self.url, skip_instance_cache=True, use_listings_cache=False, **options
            )
        self._base = base.rstrip("/")
        if self._is_s3:
            self._files.retries = 2

    def _s3_options(self) -> dict[str, Any]:
        """Return the options of an S3 client with bounded responses, or no options for any other storage."""
        if not self._is_s3:
            return {}
        from backend.storage.artifacts.bounded_http import BoundedSession, count_as_one_call

        self._one_call = count_as_one_call
        return {
            **S3_OPTIONS,
            "config_kwargs": {**S3_OPTIONS["config_kwargs"], "http_session_cls": BoundedSession},
        }

    def list_copies(self, run_id: str) -> dict[str, bool]:
        """Return the names of a run's checkpoints in the store, each with whether it has its manifest."""
        base = self._run(run_id)
        try:
            paths: list[str] = self._call(self._files.find, base)
        except FileNotFoundError:
            return {}
        names = [path[len(base) + 1 :].split("/", 1) for path in paths if path.startswith(f"{base}/")]
        has_manifest: dict[str, bool] = {}
        for checkpoint, *file in names:
            if CHECKPOINT_NAME_PATTERN.fullmatch(checkpoint):
                has_manifest[checkpoint] = has_manifest.get(checkpoint, False) or file == [MANIFEST]
        return has_manifest

    def manifest(self, directory: Path) -> bytes:
        """Read the manifest of a checkpoint's copy.

        Raises FileNotFoundError if it is missing, BadCopy if it is empty or larger than 4 MB, and
        ArtifactFault if the store fails.
        """
        key = f"{self._key(directory)}/{MANIFEST}"
        size = self._call(self._files.size, key)
        if not size or size > MAX_MANIFEST_BYTES:
            expected_size = f"expected 1 to {MAX_MANIFEST_BYTES:,}"
            raise BadCopy(
                self._format_reason(f"{directory.name}/{MANIFEST} has {size} bytes, {expected_size}")
            )
        return self._read(key, 0, size)

    def upload(self, directory: Path) -> None:
        """Upload a complete checkpoint. A copy with the same name is replaced.

        The old copy becomes incomplete when the upload begins. Raises ArtifactFault if the store fails.
        """
        target = self._key(directory)
        self._remove(f"{target}/{MANIFEST}")
        try:
            with self._translate_errors():
                for name in json.loads((directory / MANIFEST).read_bytes())["files"]:
                    self._put(directory / name, f"{target}/{name}")
                if self._is_local:  # local writes are not atomic, but renames are
                    self._put(directory / MANIFEST, f"{target}/.{MANIFEST}")
                    self._call(self._files.mv, f"{target}/.{MANIFEST}", f"{target}/{MANIFEST}")
                else:
                    self._put(directory / MANIFEST, f"{target}/{MANIFEST}")
        except (
            FileNotFoundError
        ) as error:  # the bucket does not exist, or retention has removed the checkpoint
            raise self._fault(str(error)) from error

    def _put(self, source: Path, key: str) -> None:
        seconds = _seconds_for(source.stat().st_size)
        self._call(self._files.put_file, str(source), key, seconds=seconds)

    def fetch(self, directory: Path, *, replace_existing: bool = False) -> bool:
        """Download a checkpoint unless its directory exists. Return False if the store does not have it.

        With `replace_existing`, replace an existing directory. Raises BadCopy if the copy is not a complete
        checkpoint, ArtifactFault if the store fails, and OSError if this disk is full or fails.
        """
        make_directory(directory.parent)
        make_directory(self._locks)
        with _exclusive_lock(self._locks / f"fetch-{directory.parent.name}.lock"):
            if directory.is_dir() and not replace_existing:
                return True
            try:
                manifest = self.manifest(directory)
            except FileNotFoundError:
                return False
            try:
                self._fetch(directory, manifest)
            except FileNotFoundError as error:
                raise BadCopy(self._format_reason(f"{directory.name} lacks a file: {error}")) from error
        return True

    def _fetch(self, directory: Path, manifest: bytes) -> None:
        sizes = _sizes(manifest)
        if sizes is None:
            raise BadCopy(self._format_reason(f"{directory.name}/{MANIFEST} names no files of a checkpoint"))
        source, draft = self._key(directory), directory.with_name(f".{directory.name}.fetch")
        for name, size in sizes.items():
            if (stored_size := self._call(self._files.size, f"{source}/{name}")) != size:
                message = f"{directory.name}/{name} has {stored_size} bytes instead of {size}"
                raise BadCopy(self._format_reason(message))
        available_bytes, needed_bytes = free_bytes(directory.parent), sum(sizes.values()) + RESERVE_BYTES
        if available_bytes is not None and available_bytes < needed_bytes:
            raise OSError(errno.ENOSPC, f"checkpoint {directory.name} needs {size_text(needed_bytes)}")
        for stale_directory in directory.parent.glob(".*.fetch"):
            shutil.rmtree(stale_directory)
        (draft / "trainer").mkdir(parents=True)
        try:
            for name, size in sizes.items():
                with (draft / name).open("wb") as file:
                    for start in range(0, size, BLOCK_BYTES):
                        file.write(self._read(f"{source}/{name}", start, min(start + BLOCK_BYTES, size)))
            (draft / MANIFEST).write_bytes(manifest)
            for path in (*draft.rglob("*"), draft):
                sync(path)
            if directory.is_dir():
                directory.rename(directory.with_name(f".{directory.name}.{os.getpid()}.doomed"))
            publish(draft, directory)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
        finally:
            shutil.rmtree(directory.with_name(f".{directory.name}.{os.getpid()}.doomed"), ignore_errors=True)

    def open(self, path: Path) -> IO[bytes]:
        """Open a file of a checkpoint that is read in blocks.

        This call and each read raise FileNotFoundError if it is missing, and ArtifactFault if the store
        fails.
        """
        return cast("IO[bytes]", _RemoteFile(partial(self._read, self._key(path)), self.size(path)))

    def _read(self, key: str, start: int, end: int) -> bytes:
        """Read the bytes from `start` to `end` of a file. Raises BadCopy if
        the store returns more or fewer bytes.
        """
        block = bytes(
            self._call(self._files.cat_file, key, start=start, end=end, seconds=_seconds_for(end - start))
        )
        if len(block) != end - start:
            message = f"{key.rpartition('/')[2]} gives {len(block):,} bytes instead of {end - start:,}"
            raise BadCopy(self._format_reason(message))
        return block

    def size(self, path: Path) -> int:
        """Return the size of a file in bytes.

        Raises FileNotFoundError if it is missing, and ArtifactFault if the store fails.
        """
        return int(self._call(self._files.size, self._key(path)))

    def remove_checkpoint(self, run_id: str, name: str) -> None:
        """Remove a checkpoint, starting with the manifest so that a partial copy never counts as complete.

        Raises ArtifactFault if the store fails.
        """
        if not CHECKPOINT_NAME_PATTERN.fullmatch(name):
            raise self._fault(f"{name!r:.60} is not the name of a checkpoint")
        path = f"{self._run(run_id)}/{name}"
        self._remove(f"{path}/{MANIFEST}")
        self._remove(path)

    def remove_run(self, run_id: str) -> None:
        """Remove all copies of a run. Raises ArtifactFault if the store fails."""
        self._remove(self._run(run_id))

    def try_out(self) -> None:
        """Write, read and remove a few bytes. Raises ArtifactFault if the store fails."""
        path, content = f"{self._base}/.probe-{secrets.token_hex(8)}", secrets.token_bytes(16)
        try:
            self._call(self._files.pipe_file, path, content)
            read_back = self._read(path, 0, len(content))
            self._call(self._files.rm_file, path)
        except FileNotFoundError as error:  # the bucket does not exist
            raise self._fault(str(error)) from error
        if read_back != content:
            raise self._fault("it returned different bytes")

    def _remove(self, path: str) -> None:
        """Remove a file, or a directory with all its content, if it exists."""
        with suppress(FileNotFoundError):
            self._call(self._files.rm, path, recursive=True)

    def _run(self, run_id: str) -> str:
        if not RUN_ID_PATTERN.fullmatch(run_id):
            raise self._fault(f"{run_id!r:.60} is not the id of a run")
        return f"{self._base}/{run_id}"

    def _key(self, path: Path) -> str:
        """Return the address in the store of the copy of a local path."""
        run_id, *names = path.relative_to(self.root).parts
        if ".." in names:
            raise self._fault(f"{path.name!r:.60} is not a file of a checkpoint")
        return "/".join([self._run(run_id), *names])

    def _refuse_links(self, arguments: Sequence[Any]) -> None:
        """Raise ArtifactFault if a path contains a symbolic link that leads out of the shared directory."""
        base = Path(self._base).resolve()
        for argument in arguments:
            is_key = isinstance(argument, str) and argument.startswith(f"{self._base}/")
            if is_key and not Path(argument).resolve().is_relative_to(base):
                raise self._fault(f"{argument!r:.200} is a link that leads out of it")

    def _format_reason(self, reason: str) -> str:
        return f"artifact store {self.url}: {reason}"

    def _fault(self, reason: str) -> ArtifactFault:
        return ArtifactFault(self._format_reason(reason))

    def _call(
        self,
        call: Callable[..., Any],
        *arguments: Any,
        seconds: float = 0.0,
        **options: Any,
    ) -> Any:
        """Call the file system and return the result. Raises ArtifactFault if the call fails or times out."""
        seconds = seconds or CALL_SECONDS
        with self._translate_errors(), self._one_call():
            try:
                if self._files.async_impl:  # is cancelled at the deadline, which closes its connections
                    return call(*arguments, timeout=seconds, **options)
                return self._in_thread(call, arguments, options, seconds)
            except TimeoutError:
                raise self._fault(f"no answer within {seconds:.0f} s") from None

    def _in_thread(
        self, call: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any], seconds: float
    ) -> Any:
        """Call a synchronous file system in a thread. Raises TimeoutError if it does not return in time."""
        future: Future[Any] = Future()

        def work() -> None:
            try:
                if self._is_local:
                    self._refuse_links(arguments)
                future.set_result(call(*arguments, **options))
            except BaseException as error:  # noqa: BLE001 - raised when the result is read
                future.set_exception(error)

        # A daemon thread, so that a mount that never answers does not prevent the process from exiting.
        threading.Thread(target=work, name="artifact-store", daemon=True).start()
        return future.result(timeout=seconds)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Convert every error in the `with` block to ArtifactFault, except FileNotFoundError."""
        try:
            yield
        except (FileNotFoundError, GrpoLabError):
            raise
        except Exception as error:  # each storage raises errors of its own libraries
            reason = str(_underlying_error(error)).strip().partition("\n")[0] or type(error).__name__
            raise self._fault(redact(reason)[:MAX_REASON_CHARACTERS]) from error


def artifact_store(settings: Settings) -> ArtifactStore | None:
    """Return the store of this installation, or None if ARTIFACTS_URL is not set.

    Raises ArtifactFault if the address cannot be parsed.
    """
    if not settings.artifacts_url:
        return None
    return _store(settings.artifacts_url, settings.state, os.getpid())


@lru_cache(maxsize=8)
def _store(url: str, state: Path, _process: int) -> ArtifactStore:
    """Return one store per process, because connections do not survive a fork."""
    return ArtifactStore(url, state)


class _RemoteFile(io.RawIOBase):
    """A seekable file in the store, whose bytes are read by `read(start, end)`."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read_range, self._size, self._offset = read, size, 0
        self._block, self._block_at = b"", 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._offset

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        origin = {os.SEEK_SET: 0, os.SEEK_CUR: self._offset, os.SEEK_END: self._size}[whence]
        self._offset = max(0, origin + offset)
        return self._offset

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes from the buffered block. Each block is one request to the store."""
        if self._offset >= self._size:
            self._block = b""  # frees the memory, because many files are open at a time
            return 0
        if not self._block_at <= self._offset < self._block_at + len(self._block):
            self._block_at = self._offset
            self._block = self._read_range(self._offset, min(self._offset + BLOCK_BYTES, self._size))
        offset = self._offset - self._block_at
        chunk = self._block[offset : offset + len(buffer)]
        buffer[: len(chunk)] = chunk
        self._offset += len(chunk)
        return len(chunk)


def _underlying_error(error: BaseException) -> BaseException:
    """Return the BadAnswer that the storage's client has wrapped in its errors, or else the error itself."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, BadResponse):
        cause = cause.__cause__ or cause.__context__
    return cause or error


def _seconds_for(size: int) -> float:
    """Return the time limit for a file of `size` bytes, in seconds."""
    return CALL_SECONDS + size / MIN_BYTES_PER_SECOND


def _sizes(manifest: bytes) -> dict[str, int] | None:
    """Return the size in bytes of each file that a manifest names, or None if the manifest is invalid."""
    try:
        files_by_name: dict[Any, Any] = json.loads(manifest)["files"]
        sizes = {name: entry["bytes"] for name, entry in files_by_name.items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None
    is_valid = 0 < len(sizes) <= MAX_FILES and all(
        FILE_NAME_PATTERN.fullmatch(name) and name != MANIFEST and type(size) is int and 0 <= size < 2**50
        for name, size in sizes.items()
    )
    return sizes if is_valid else None


@contextmanager
def _exclusive_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on the file `path`, which is also released when the process ends."""
    while True:
        with path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_same_file(path, file):
                continue  # the previous holder has removed the file
            try:
                yield
            finally:
                path.unlink(missing_ok=True)
            return


def _is_same_file(path: Path, file: IO[bytes]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
