"""Small, full or read-only disks: a private tmpfs, if the machine allows mounting."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import servers
from tests.conftest import require


@contextmanager
def small_disk(path: Path, *, megabytes: int) -> Iterator[Path]:
    """Mount a file system of this size at `path`, or skip the test if mounting is not allowed."""
    path.mkdir(parents=True, exist_ok=True)
    require(lambda: _mount(path, megabytes))
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def _mount(path: Path, megabytes: int) -> None:
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0700", "grpolab-test", str(path)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise servers.Missing("a disk to fill (mounting a tmpfs needs root)") from error


@contextmanager
def mounted_read_only(path: Path) -> Iterator[Callable[[], None]]:
    """Make a mounted file system read-only until the yielded function is called."""

    def mount(mode: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{mode}", str(path)], check=True)

    mount("ro")
    try:
        yield lambda: mount("rw")
    finally:
        mount("rw")


def fill(path: Path, *, leave: int) -> Path:
    """Fill the disk of `path` except `leave` bytes, and return the file to delete to free the space."""
    filler = path / "filler"
    with filler.open("wb") as file:
        while (room := shutil.disk_usage(path).free - leave) > 0:
            file.write(b"\0" * min(room, 1_000_000))
            file.flush()
    return filler
