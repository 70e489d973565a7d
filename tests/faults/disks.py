"""File systems on loop devices, and their images as a power cut would leave them.

Written data stays in the kernel's memory until it is synced to the device. The image below a mounted file
system therefore holds what was synced and little else: a copy taken while every process is stopped is what
the disk holds after a power cut. The file system commits by itself only every ten minutes, and a rename
does not sync the content of its file."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DISK_BYTES = 384_000_000
MOUNT_OPTIONS = "loop,noatime,commit=600,noauto_da_alloc"
REQUIRED_COMMANDS = ("mount", "umount", "losetup", "mkfs.ext4", "cp")
MEMORY_DIRECTORY = Path("/dev/shm")
MIN_MEMORY_BYTES = 6_000_000_000
"""Free memory from which images are kept in memory, since syncing them to a real disk proves nothing more."""


class Disk:
    """A file system in an image file."""

    def __init__(self, image: Path, mount_point: Path) -> None:
        self.image, self.mount_point = image, mount_point

    def make(self) -> None:
        """Make an empty file system."""
        with self.image.open("wb") as file:
            file.truncate(DISK_BYTES)
        _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", str(self.image))

    def mount(self) -> None:
        """Mount the file system, which replays its journal after a power cut."""
        self.mount_point.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "ext4", "-o", MOUNT_OPTIONS, str(self.image), str(self.mount_point))

    def unmount(self) -> None:
        """Unmount the file system, which syncs everything to the image."""
        _run("umount", str(self.mount_point))

    def copy(self, image: Path) -> None:
        """Copy the image."""
        _run("cp", "--sparse=always", str(self.image), str(image))


@contextmanager
def mounted_disks(*disks: Disk) -> Iterator[None]:
    """Mount several disks at their mount points."""
    mounted: list[Disk] = []
    try:
        for disk in disks:
            disk.mount()
            mounted.append(disk)
        yield
    finally:
        for disk in reversed(mounted):
            disk.unmount()


@contextmanager
def image_directory() -> Iterator[Path]:
    """Yield a directory for images, accessible to the user of Postgres."""
    is_roomy = MEMORY_DIRECTORY.is_dir() and shutil.disk_usage(MEMORY_DIRECTORY).free > MIN_MEMORY_BYTES
    directory = Path(tempfile.mkdtemp(prefix="gl-", dir=MEMORY_DIRECTORY if is_roomy else None))
    directory.chmod(0o711)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def reason_without_disks() -> str:
    """Return the reason why this machine has no loop devices, or an empty text."""
    if os.geteuid() != 0:
        return "power cuts need root, who alone may mount a file system"
    if missing_commands := [name for name in REQUIRED_COMMANDS if shutil.which(name) is None]:
        return f"power cuts need {', '.join(missing_commands)}"
    with image_directory() as directory:
        disk = Disk(directory / "image", directory / "place")
        try:
            disk.make()
            with mounted_disks(disk):
                return ""
        except subprocess.CalledProcessError as error:
            return f"power cuts need loop devices: {error.stderr.decode().strip()}"
        finally:
            with suppress(OSError):
                disk.image.unlink()


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)
