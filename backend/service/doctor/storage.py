"""Check the state directory and its disk, the models and the datasets."""

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import psutil
from sqlalchemy import make_url

from backend.base.settings import Settings
from backend.base.text import size_text
from backend.service.doctor.finding import Finding, bad, ok, run_check, warn
from backend.service.monitoring.status import LOW_BYTES
from backend.service.process.preflight import check_state_dir
from backend.storage.artifacts.store import artifact_store
from backend.storage.faults import free_bytes

COMFORTABLE_BYTES = 5_000_000_000
"""Free disk space in bytes for more than small runs: a checkpoint of the tiny policy has 12 MB, others
gigabytes.
"""

SLOW_SECONDS = 0.05
"""Duration of a sync in seconds above which the disk is slow: a step needs one sync, a checkpoint a dozen."""

HOPELESS_SECONDS = 1.0

NETWORK_FILE_SYSTEMS = (
    *("9p", "afs", "beegfs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "gpfs", "lustre", "nfs", "smb"),
)
"""Prefixes of the names of file systems on which SQLite's write-ahead log does not work."""


def examine_storage(settings: Settings) -> Iterator[Finding]:
    """Yield a finding for each topic of this module."""
    state = run_check("state", lambda: check_state_dir(settings), f"{settings.state} can be written")
    yield state
    if state.is_good:
        yield privacy(settings.state)
        yield space(settings.state, free_bytes(settings.state))
        yield speed(settings.state, sync_seconds(settings.run_dir))
    url = make_url(settings.effective_database_url)
    if url.get_backend_name() == "sqlite" and url.database:
        yield file_system(Path(url.database), find_file_system(Path(url.database)))
    if settings.artifacts_url:
        yield run_check("artifacts", lambda: _try_store(settings), f"{settings.artifacts_url} can be written")
    yield models(settings.models_dir)
    yield datasets(settings.datasets_dir)


def _try_store(settings: Settings) -> None:
    if (store := artifact_store(settings)) is not None:
        store.try_out()


def privacy(state: Path) -> Finding:
    """Check that other users cannot read tokens or change the state directory."""
    for path in (state, *sorted(state.glob("*token"))):
        status = path.stat()
        if status.st_uid != os.getuid():
            return bad("privacy", f"{path} is owned by another user: `chown -R {os.getuid()} {state}`")
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            return bad("privacy", f"others may read {path}: `chmod go= {path}`")
    return ok("privacy", "only this user can read it")


def space(path: Path, available_bytes: int | None) -> Finding:
    """Check the free space for the database and checkpoints."""
    if available_bytes is None:
        return bad("disk", f"the disk of {path} does not report its free space: check it with `df`")
    if available_bytes < LOW_BYTES:
        return bad(
            "disk",
            f"{size_text(available_bytes)} free on the disk of {path}: "
            "make room, or choose another STATE_DIR",
        )
    if available_bytes < COMFORTABLE_BYTES:
        return warn(
            "disk", f"{size_text(available_bytes)} free on the disk of {path}: enough for small runs only"
        )
    return ok("disk", f"{size_text(available_bytes)} free")


def sync_seconds(directory: Path) -> float:
    """Return the time to write a few bytes to disk, in seconds: the median of five tries."""
    path, durations = directory / f".doctor.{os.getpid()}", []
    try:
        with path.open("wb", buffering=0) as file:
            for _ in range(5):
                started_at = time.perf_counter()
                file.write(bytes(4096))
                os.fsync(file.fileno())
                durations.append(time.perf_counter() - started_at)
    except OSError:
        return float("inf")
    finally:
        path.unlink(missing_ok=True)
    return median(durations)


def speed(path: Path, seconds: float) -> Finding:
    """Check the speed of the disk, on which every committed step depends."""
    text = f"a write reaches the disk in {seconds * 1000:.1f} ms"
    if seconds > HOPELESS_SECONDS:
        return bad("speed", f"{text}: {path} is too slow or broken: use a local disk as STATE_DIR")
    if seconds > SLOW_SECONDS:
        return warn("speed", f"{text}: steps are stored slowly: use a local SSD as STATE_DIR")
    return ok("speed", text)


def find_file_system(path: Path) -> str:
    """Return the type of the file system that contains a path; empty if it is unknown."""
    absolute = path.absolute()
    mounts = {Path(partition.mountpoint): partition.fstype for partition in psutil.disk_partitions(all=True)}
    return next((mounts[parent] for parent in (absolute, *absolute.parents) if parent in mounts), "")


def file_system(path: Path, kind: str) -> Finding:
    """Check that SQLite is on a local disk, because its log needs memory shared by all processes."""
    if kind.lower().startswith(NETWORK_FILE_SYSTEMS):
        return bad(
            "sqlite",
            f"{path} is on a network file system ({kind}), where SQLite loses data: "
            "choose a local STATE_DIR, or Postgres with DATABASE_URL",
        )
    return ok("sqlite", f"on a local disk ({kind or 'unknown file system'})")


def models(directory: Path) -> Finding:
    """Check the models directory, whose subdirectories are offered as policies."""
    directories = [path for path in sorted(directory.glob("*")) if path.is_dir()]
    for path in directories:
        if not (path / "config.json").is_file() or not any(path.glob("*.safetensors")):
            return warn("models", f"{path} is not a policy: it must contain config.json and *.safetensors")
    return ok("models", f"{len(directories)} in {directory}, beside the built-in ones")


def datasets(directory: Path) -> Finding:
    """Check the datasets directory, which contains JSONL files and uploads."""
    unreadable_paths = [path for path in sorted(directory.rglob("*.jsonl")) if not os.access(path, os.R_OK)]
    if unreadable_paths:
        return warn("datasets", f"{unreadable_paths[0]} cannot be read: `chmod u+r {unreadable_paths[0]}`")
    if directory.exists() and not os.access(directory, os.W_OK):
        return warn("datasets", f"{directory} is not writable: uploads will be refused")
    return ok("datasets", f"{len(list(directory.rglob('*.jsonl')))} files in {directory}")
