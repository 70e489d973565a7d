"""File operations that survive a power cut: when a call returns, its data is on the disk.

A new file is an entry of its directory, so the directory is also flushed, after the content. A rename is
atomic, but without a flush it may reach the disk before the content of the file.
"""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Flush the content of a file, or the entries of a directory, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path, *, mode: int = 0o777) -> None:
    """Create a directory and its missing parents. Do nothing if the directory exists."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(mode=mode, exist_ok=True)
    sync(path.parent)


def publish(draft: Path, target: Path) -> None:
    """Rename a finished draft to its target. The draft is a file or directory next to the target."""
    sync(draft)
    draft.replace(target)
    sync(target.parent)
