"""The GPU lock, which allows only one worker per GPU of this machine.

It is independent of state directory and user: a lock is a file in /tmp that every user may open. The kernel
releases it when the process ends.
"""

import fcntl
import logging
import os
import stat
from pathlib import Path

logger = logging.getLogger(__name__)

DIRECTORY = Path("/tmp")  # noqa: S108 - a place that all users of the machine share; never followed, never written
"""Directory of the lock files. It is not TMPDIR, which may differ between two workers."""

_held: list[int] = []  # descriptors, open until the process ends


def lock_gpu(uuid: str) -> bool:
    """Lock a GPU until this process ends, or return False if another worker of this machine holds it."""
    path = DIRECTORY / f"grpolab-gpu-{uuid}.lock"
    try:
        descriptor = _open_lock_file(path)
    except OSError as error:
        logger.warning("GPU %s cannot be locked, so it is left alone: %s", uuid, error)
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        logger.warning("GPU %s is held by another worker of this machine", uuid)
        os.close(descriptor)
        return False
    _held.append(descriptor)
    return True


def _open_lock_file(path: Path) -> int:
    """Open the file, or create it if needed.

    Another user's file is opened for reading, which is enough to lock it.
    """
    safe_flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | safe_flags, 0o444)
        os.fchmod(descriptor, 0o444)  # regardless of the umask
    except FileExistsError:
        descriptor = os.open(path, os.O_RDONLY | safe_flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a plain file")
    return descriptor
