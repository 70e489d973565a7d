"""Disks that are small, full or read-only: a tmpfs of the test's own, where the machine lets us mount."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import servers
from tests.conftest import require


@contextmanager
def small_disk(path: Path, *, megabytes: int) -> Iterator[Path]:
    """Mount a file system of that size at `path`; skip loudly where mounting is not allowed."""
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
def remounted_read_only(path: Path) -> Iterator[Callable[[], None]]:
    """Keep a mounted file system from taking changes until the yielded function is called."""

    def mount(mode: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{mode}", str(path)], check=True)

    mount("ro")
    try:
        yield lambda: mount("rw")
    finally:
        mount("rw")


def fill(path: Path, *, leave: int) -> Path:
    """Fill the disk of `path` but for `leave` bytes; removing the file that is returned makes room again."""
    filler = path / "filler"
    with filler.open("wb") as file:
        while (room := shutil.disk_usage(path).free - leave) > 0:
            file.write(b"\0" * min(room, 1_000_000))
            file.flush()
    return filler
