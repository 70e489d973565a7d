"""One measurement: a service, pages that follow it, a writer, and the result."""

import asyncio
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from backend.service.process.instance_lock import is_alive
from tests.ports import free_port
from tests.system.stream.clients import Page, Sleeper

LOST_SECONDS = 60
"""A page that has not had its message after this long will never have it."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the service is put under."""

    pages: int
    sleepers: int
    seconds: float
    cut_after: tuple[float, float]
    """A page is cut off after a time between these, in seconds."""
    per_second: float = 20.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Figures:
    """What came of it."""

    written: int
    received: int
    gaps: int
    repeats: int
    resets: int
    missing_at_end: int
    """Pages that never had the last event."""
    cuts: int
    rss_growth: int
    """Resident bytes that the service takes on once all pages are connected."""


def measure(load: Load, state: Path) -> Figures:
    """Start a service on SQLite in `state` and put it under load."""
    token, port = secrets.token_urlsafe(), free_port()
    variables = {
        "STATE_DIR": str(state),
        "PORT": str(port),
        "GRPOLAB_TOKEN": token,
        "BROKER_URL": "filesystem://",
    }
    variables |= {"STREAMS_PER_TOKEN": "0"}
    with (state / "service.log").open("wb") as log:
        argv = [sys.executable, "-m", "backend.service", "serve"]
        service = subprocess.Popen(argv, env={**os.environ, **variables}, stdout=log, stderr=log)
    try:
        _wait_for(service, port)
        return asyncio.run(_measure(load, service, port, token, f"sqlite:///{state / 'grpolab.db'}"))
    finally:
        service.kill()
        service.wait()


def _wait_for(service: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + 120
    while service.poll() is None and time.monotonic() < deadline:
        if is_alive(f"http://127.0.0.1:{port}"):
            return
        time.sleep(0.1)
    raise SystemExit("the service did not start")


async def _until(condition: Callable[[], bool]) -> None:
    """Wait until it is true, or so long that it never will be."""
    deadline = time.monotonic() + LOST_SECONDS
    while not condition() and time.monotonic() < deadline:  # noqa: ASYNC110 - messages of other processes
        await asyncio.sleep(0.1)


async def _measure(
    load: Load, service: "subprocess.Popen[bytes]", port: int, token: str, url: str
) -> Figures:
    dice = random.Random(load.seed)
    pages = [Page(port, token) for _ in range(load.pages)]
    warm_up = min(10.0, load.seconds / 4)
    until = time.monotonic() + warm_up + load.seconds
    following = [
        asyncio.create_task(page.follow(until + 2, load.cut_after, random.Random(dice.random())))
        for page in pages
    ]
    sleepers = [Sleeper(port, token) for _ in range(load.sleepers)]
    await _until(lambda: all(page.last_id for page in pages))  # what was before is no news
    process = psutil.Process(service.pid)
    writer = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.system.stream.writer", url),
        *(str(load.per_second), str(warm_up + load.seconds)),
        stdout=asyncio.subprocess.PIPE,
    )
    await asyncio.sleep(warm_up)
    before = peak = process.memory_info().rss
    while writer.returncode is None:
        await asyncio.sleep(1)
        peak = max(peak, process.memory_info().rss)
        ports = {connection.raddr.port for connection in process.net_connections("tcp") if connection.raddr}
        for sleeper in sleepers:
            sleeper.look(ports)
    output = await writer.stdout.read() if writer.stdout else b""
    written = int(output)
    await asyncio.gather(*following)
    await _until(lambda: all(page.number == written for page in pages))
    service.send_signal(signal.SIGTERM)
    await asyncio.to_thread(service.wait)
    for sleeper in sleepers:
        sleeper.close()
    return Figures(
        written=written,
        received=sum(page.received for page in pages),
        gaps=sum(page.gaps for page in pages),
        repeats=sum(page.repeats for page in pages),
        resets=sum(page.resets for page in pages),
        missing_at_end=sum(page.number != written for page in pages),
        cuts=sum(page.cuts for page in pages),
        rss_growth=peak - before,
    )
