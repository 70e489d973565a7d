"""Write tar files while they are sent, without copying their contents."""

import tarfile
from collections.abc import Iterator
from typing import IO, NamedTuple

CHUNK_BYTES = 1 << 20


class Member(NamedTuple):
    """A file to be added to a tar file; it is open, so that its content cannot be removed meanwhile."""

    name: str
    file: IO[bytes]
    size: int


def tar_stream(members: list[Member]) -> Iterator[bytes]:
    """Yield the bytes of a tar file with these members, which are closed at the end.

    Raise OSError, leaving the tar file incomplete, if a file has become shorter.
    """
    try:
        for member in members:
            header = tarfile.TarInfo(member.name)
            header.size, header.mode = member.size, 0o644
            yield header.tobuf(tarfile.PAX_FORMAT)
            yield from _content(member)
            member.file.close()
            yield bytes(-member.size % tarfile.BLOCKSIZE)
        yield bytes(2 * tarfile.BLOCKSIZE)
    finally:
        for member in members:
            member.file.close()


def _content(member: Member) -> Iterator[bytes]:
    remaining_bytes = member.size
    member.file.seek(0)
    while remaining_bytes:
        block = member.file.read(min(CHUNK_BYTES, remaining_bytes))
        if not block:
            raise OSError(f"{member.name} is shorter than it was")
        remaining_bytes -= len(block)
        yield block
