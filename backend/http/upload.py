"""Uploads: requests whose body is a file, which is counted while it arrives and written to a draft."""

import asyncio
import errno
from collections.abc import AsyncGenerator, Collection
from typing import IO

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from backend.base.errors import GrpoLabError

GATHERED_BYTES = 1 << 20
MAX_SILENCE_SECONDS = 30.0
"""Maximum number of seconds without data during an upload."""


class TooLarge(GrpoLabError):
    """The upload is larger than accepted."""

    status = 413
    title = "Too large"


class WrongType(GrpoLabError):
    """The body has another type than expected."""

    status = 415
    title = "Unsupported media type"


class CutOff(GrpoLabError):
    """The client stopped sending data during the upload."""

    status = 400
    title = "Bad request"


class CannotStore(GrpoLabError):
    """The disk cannot store the upload."""

    status = 507
    title = "Insufficient storage"

    def __init__(self, error: OSError, target: str) -> None:
        reason_by_errno = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the quota is exceeded"}
        reason = reason_by_errno.get(error.errno or 0, error.strerror or str(error))
        super().__init__(f"cannot write to {target}: {reason}; nothing was stored")


def check_type(request: Request, types: Collection[str], *, expected_types: str) -> None:
    """Raise WrongType if the body does not have one of these types."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in types:
        raise WrongType(f"expected Content-Type: {expected_types}, got {kind!r}")


async def receive(request: Request, draft: IO[bytes], max_bytes: int) -> None:
    """Write the body to the draft; raise TooLarge based on the received bytes, not only on Content-Length."""
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > max_bytes:
        raise TooLarge(f"at most {max_bytes:,} bytes are allowed")
    received_bytes, buffer, chunks = 0, bytearray(), request.stream()
    while chunk := await _read_next_chunk(chunks):
        received_bytes += len(chunk)
        if received_bytes > max_bytes:
            raise TooLarge(f"at most {max_bytes:,} bytes are allowed")
        buffer += chunk
        if len(buffer) >= GATHERED_BYTES:
            await run_in_threadpool(draft.write, bytes(buffer))
            buffer.clear()
    await run_in_threadpool(draft.write, bytes(buffer))
    await run_in_threadpool(draft.flush)


async def _read_next_chunk(chunks: AsyncGenerator[bytes, None]) -> bytes:
    """Return the next chunk of the body, empty at its end; raise CutOff if no data arrive."""
    try:
        async with asyncio.timeout(MAX_SILENCE_SECONDS):
            return await anext(chunks, b"")
    except TimeoutError:
        raise CutOff(f"no data arrived for {MAX_SILENCE_SECONDS:.0f} seconds; nothing was stored") from None
