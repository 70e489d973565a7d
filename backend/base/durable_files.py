"""File operations that survive a power cut: what a call has written is on the disk when it returns.

A new name is an entry of its directory, so the directory is forced to the disk too, after the content. On
its own a rename is atomic, but it may reach the disk before the content of the file does.
"""

import os
from pathlib import Path


def sync(path: Path) -> None:
    """Force a file's content, or a directory's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: Path, *, mode: int = 0o777) -> None:
    """Make a directory and those above it that are missing; one that is there stays unchanged."""
    if path.is_dir():
        return
    make_directory(path.parent)
    path.mkdir(mode=mode, exist_ok=True)
    sync(path.parent)


def publish(draft: Path, target: Path) -> None:
    """Give a finished draft its name. The draft, a file or a directory, lies next to its target."""
    sync(draft)
    draft.replace(target)
    sync(target.parent)
