"""Clients in a separate process, which shares only the loopback interface with the service.

The job is JSON on standard input with `port`, `request` as it is sent (the word NUMBER in it is a
different large number each time), `clients` and `seconds`. The process prints the seconds of each request,
the bytes of the largest answer, and the statuses of all.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any


@dataclass(slots=True)
class Measured:
    """Measurements of concurrent clients."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[int] = field(default_factory=Counter)
    bytes: int = 0
    """Size of the largest answer, in bytes."""


async def send_requests(
    port: int, requests: Iterator[bytes], measurements: Measured, deadline: float
) -> None:
    """Send requests as one client on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**26)
    while (started_at := time.perf_counter()) < deadline:
        writer.write(next(requests))
        status, size, is_last = await _answer(reader)
        measurements.seconds.append(time.perf_counter() - started_at)
        measurements.statuses[status] += 1
        measurements.bytes = max(measurements.bytes, size)
        if is_last:
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**26)
    writer.close()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, int, bool]:
    """Return the status of an answer, its content length in bytes, and whether the connection ends."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
    status = int(head[0].split()[1])
    fields = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
    is_last = fields.get("connection") == "close" or head[0].startswith("http/1.0")
    if fields.get("transfer-encoding") == "chunked":
        return status, await _chunks(reader), is_last
    size = int(fields.get("content-length", "0"))
    await reader.readexactly(size)
    return status, size, is_last


async def _chunks(reader: asyncio.StreamReader) -> int:
    total = 0
    while size := int(await reader.readuntil(b"\r\n"), 16):
        await reader.readexactly(size + 2)
        total += size
    await reader.readuntil(b"\r\n")
    return total


async def main() -> None:
    """Run the job."""
    job: dict[str, Any] = json.load(sys.stdin)
    measurements = Measured()
    deadline = time.perf_counter() + job["seconds"]
    numbers = count(time.time_ns() // 1_000_000)
    requests = (job["request"].replace("NUMBER", str(number)).encode() for number in numbers)
    await asyncio.gather(
        *(send_requests(job["port"], requests, measurements, deadline) for _ in range(job["clients"]))
    )
    print(
        json.dumps(
            {"seconds": measurements.seconds, "statuses": measurements.statuses, "bytes": measurements.bytes}
        )
    )


asyncio.run(main())
