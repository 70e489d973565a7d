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
from benchmarks.stream.clients import Page, Sleeper
from tests.ports import free_port

LOST_SECONDS = 60
"""A page that has not had its message after this long will never have it."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the service is put under."""

    pages: int = 100
    sleepers: int = 10
    seconds: float = 600.0
    per_second: float = 20.0
    cut_after: tuple[float, float] = (5.0, 60.0)
    """A page is cut off after a time between these, in seconds."""
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
    ends: int
    """Times the service itself ended a page's stream, because it took too little."""
    seconds: list[float]
    """How late events were, sorted."""
    rss_before: int
    """Resident bytes of the service once all pages are connected."""
    rss_growth: int
    cpu_share: float
    """Of one core, by the service."""
    dropped: list[float]
    """Seconds after which pages that do not read were dropped."""
    end_seconds: float
    """From SIGTERM to the end of the service, with all pages connected."""

    def percentile(self, share: float) -> float:
        """How late, in seconds, the given share of events was at most."""
        return self.seconds[min(len(self.seconds) - 1, int(share * len(self.seconds)))]


def measure(load: Load, state: Path) -> Figures:
    """Start a service on SQLite in `state` and put it under load."""
    token, port = secrets.token_urlsafe(), free_port()
    own = {"STATE_DIR": str(state), "PORT": str(port), "GRPOLAB_TOKEN": token, "BROKER_URL": "filesystem://"}
    own |= {"STREAMS_PER_TOKEN": "0"}
    with (state / "service.log").open("wb") as log:
        argv = [sys.executable, "-m", "backend.service", "serve"]
        service = subprocess.Popen(argv, env={**os.environ, **own}, stdout=log, stderr=log)
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
        *(sys.executable, "-m", "benchmarks.stream.writer", url),
        *(str(load.per_second), str(warm_up + load.seconds)),
        stdout=asyncio.subprocess.PIPE,
    )
    await asyncio.sleep(warm_up)
    before, began, worked = process.memory_info().rss, time.monotonic(), sum(process.cpu_times()[:2])
    peak = before
    while writer.returncode is None:
        await asyncio.sleep(1)
        peak = max(peak, process.memory_info().rss)
        ports = {each.raddr.port for each in process.net_connections("tcp") if each.raddr}
        for sleeper in sleepers:
            sleeper.look(ports)
    cpu_share = (sum(process.cpu_times()[:2]) - worked) / (time.monotonic() - began)
    output = await writer.stdout.read() if writer.stdout else b""
    written = int(output)
    await asyncio.gather(*following)
    await _until(lambda: all(page.number == written for page in pages))
    asked = time.monotonic()
    service.send_signal(signal.SIGTERM)
    await asyncio.to_thread(service.wait)
    ended = time.monotonic() - asked
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
        ends=sum(page.ends for page in pages),
        seconds=sorted(second for page in pages for second in page.seconds),
        rss_before=before,
        rss_growth=peak - before,
        cpu_share=cpu_share,
        dropped=[second for sleeper in sleepers for second in sleeper.lived],
        end_seconds=ended,
    )
