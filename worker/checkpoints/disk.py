"""Check the disk before a checkpoint is written, and report a full or broken disk."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from backend.base.errors import GrpoLabError
from backend.base.text import size_text
from backend.storage.faults import disk_fault, free_bytes

RESERVE_BYTES = 8_000_000
"""Bytes that stay free in addition to a checkpoint, because the database and the logs may share its disk."""


class DiskFault(GrpoLabError):
    """Raised if the disk cannot store a checkpoint. The run is paused until the disk is repaired."""

    title = "Disk"


def need_room(path: Path, needed_bytes: int) -> None:
    """Raise DiskFault unless `needed_bytes` bytes fit on the disk of `path`."""
    available_bytes = free_bytes(path)
    if available_bytes is not None and available_bytes < needed_bytes + RESERVE_BYTES:
        requirement = f"a checkpoint needs {size_text(needed_bytes)} and {size_text(RESERVE_BYTES)} stay free"
        raise DiskFault(f"disk: {size_text(available_bytes)} free on the disk of {path}; {requirement}")


@contextmanager
def translate_disk_errors(path: Path, *, needed_bytes: int = 0) -> Iterator[None]:
    """Convert errors of the disk of `path` to DiskFault, independently of the library that raised them."""
    try:
        yield
    except Exception as error:
        if (fault := disk_fault(error, path)) is None:
            raise
        requirement = f"; a checkpoint needs {size_text(needed_bytes)}" if needed_bytes else ""
        raise DiskFault(f"disk: {fault.sentence}{requirement}") from error
