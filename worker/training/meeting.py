"""Create the directory in which the ranks of a run meet, and remove those of killed processes.

A directory is in use while a process holds the lock of its file `alive`. The lock is released when the
process ends.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

PREFIX = "grpolab-ranks-"
ALIVE = "alive"


@contextlib.contextmanager
def meeting_directory() -> Iterator[Path]:
    """Create a directory that only this user may open, because anyone who can write there could join the
    group.
    """
    remove_abandoned()
    directory = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with (directory / f".{ALIVE}").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            (directory / f".{ALIVE}").rename(
                directory / ALIVE
            )  # renamed with its lock, so the file never appears unlocked
            yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def remove_abandoned() -> None:
    """Remove this user's directories that no process holds."""
    for directory in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if directory.is_symlink() or directory.stat().st_uid != os.getuid():
                continue
            with (directory / ALIVE).open("r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(directory, ignore_errors=True)
