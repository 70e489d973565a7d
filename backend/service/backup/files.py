"""Access files of a backup from an untrusted source: canonical names, resolved without following links."""

import os
import shutil
import stat
import unicodedata
from collections.abc import Collection, Iterator
from hashlib import file_digest, sha256
from io import BufferedReader
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from backend.base.errors import Conflict

MAX_NAME_BYTES = 255
"""Maximum length of a file or directory name that file systems support, in bytes."""

MAX_PATH_BYTES = 1024
"""Maximum length of a path within a backup, in bytes."""

CHUNK_BYTES = 1 << 20


class BadBackup(Conflict):
    """The directory is not a backup, is incomplete, or does not fit this installation."""


class Digest(BaseModel):
    """The size and hash of a saved file."""

    model_config = ConfigDict(strict=True)

    bytes: Annotated[int, Field(ge=0, lt=2**63)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def is_canonical(name: str) -> bool:
    """Return whether a relative path is in canonical form on every file system."""
    try:
        encoded_name = name.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return (
        len(encoded_name) <= MAX_PATH_BYTES
        and unicodedata.is_normalized("NFC", name)
        and "\\" not in name
        and not any(unicodedata.category(character) == "Cc" for character in name)
        and all(
            segment not in ("", ".", "..") and len(segment.encode()) <= MAX_NAME_BYTES
            for segment in name.split("/")
        )
    )


def check_names(names: Collection[str]) -> None:
    """Raise BadBackup for a name that leads outside, or two that some file systems treat as equal."""
    for name in names:
        if not is_canonical(name):
            raise BadBackup(f"the backup names a file outside of itself: {name!r:.200}")
    name_by_folded = {_fold_name(name): name for name in names}
    if len(name_by_folded) < len(names):
        duplicate = next(name for name in names if name_by_folded[_fold_name(name)] != name)
        raise BadBackup(f"the backup names a file twice, in different case: {duplicate!r:.200}")
    parents = {key[: key.rindex("/")] for key in name_by_folded if "/" in key}
    for parent in parents:
        segments = parent.split("/")
        for depth in range(1, len(segments) + 1):
            if (ancestor := "/".join(segments[:depth])) in name_by_folded:
                raise BadBackup(
                    f"the backup has a file where it has a directory: {name_by_folded[ancestor]!r:.200}"
                )


def _fold_name(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold()


def open_below(directory: Path, name: str) -> BufferedReader:
    """Open a regular file below a directory; raise OSError if that fails or the path contains a link."""
    *parents, last = name.split("/")
    parent = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for segment in parents:
            child_descriptor = os.open(segment, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
            os.close(parent)
            parent = child_descriptor
        # O_NONBLOCK, because opening a pipe without a writer would block.
        descriptor = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=parent)
    finally:
        os.close(parent)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{name} is not a regular file")
    return os.fdopen(descriptor, "rb")


def list_files(directory: Path) -> Iterator[str]:
    """Yield the relative path of every entry that is not a directory, without following links."""
    for parent, directories, files in os.walk(directory):
        links = [name for name in directories if (Path(parent) / name).is_symlink()]
        for name in sorted([*files, *links]):
            yield (Path(parent) / name).relative_to(directory).as_posix()


def describe(file: BufferedReader) -> Digest:
    """Return the size and the SHA-256 of a file's content."""
    digest = file_digest(file, "sha256")
    return Digest(bytes=file.tell(), sha256=digest.hexdigest())


def copy_out(directory: Path, name: str, target: Path, expected_digest: Digest) -> None:
    """Copy a file of a backup to a path that does not exist; raise BadBackup if the file has changed.

    It is not hard-linked like files of this installation, because the owner of the backup could change it
    later.
    """
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest, size = sha256(), 0
    with open_below(directory, name) as source, target.open("xb") as copy:
        while block := source.read(CHUNK_BYTES):
            digest.update(block)
            size += len(block)
            copy.write(block)
    if (size, digest.hexdigest()) != (expected_digest.bytes, expected_digest.sha256):
        target.unlink()
        raise BadBackup(f"{directory} is damaged: {name} is not the file that was saved")


def link_or_copy(source: Path, target: Path) -> None:
    """Link a file of this installation, which never changes, or copy it if hard links are not possible."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        shutil.copyfile(source, target, follow_symlinks=False)
