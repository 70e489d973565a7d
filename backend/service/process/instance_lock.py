"""The instance lock: at most one running installation per state directory; the kernel releases the lock."""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import IO, NamedTuple
from urllib.parse import urlsplit

from backend.base.outgoing import fetch
from backend.base.settings import Settings

NOTE_SECONDS = 2.0
"""Seconds for the holder to record its identity, or to release the lock if it is just ending."""


class Instance(NamedTuple):
    """A running installation."""

    pid: int
    url: str

    def __str__(self) -> str:
        if not self.pid:
            return "GRPO Lab is starting or stopping here"
        return f"GRPO Lab is already running here: {self.url} (process {self.pid})"


class AlreadyRunning(Exception):
    """Another launcher holds this state directory."""

    def __init__(self, instance: Instance) -> None:
        super().__init__(str(instance) if instance.pid else f"{instance}: try again in a moment")
        self.instance = instance


class Hold(NamedTuple):
    """The result of acquiring the lock."""

    is_after_crash: bool
    """Whether the predecessor crashed, so that its child processes may still be ending."""


@contextmanager
def hold_instance(settings: Settings, url: str) -> Iterator[Hold]:
    """Hold the lock of this state directory; raise AlreadyRunning if another process has it."""
    path = settings.run_dir / "up.lock"
    with path.open("a+") as file:
        _acquire(file, path)
        was_clean = not path.read_text()
        _write(path, json.dumps(Instance(os.getpid(), url)._asdict()))
        yield Hold(is_after_crash=not was_clean)
        _write(path, "")


def is_alive(url: str) -> bool:
    """Return whether a service responds at this URL; it may not be ready yet."""
    try:
        return fetch(url + "/healthz", max_bytes=0, seconds=2.0).status == 200
    except (OSError, HTTPException):
        return False


def running_instance(settings: Settings) -> Instance | None:
    """Return the running installation, or None; nothing is changed."""
    path = settings.run_dir / "up.lock"
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return None
    except BlockingIOError:
        return _read(path)
    return None


def listening_as(settings: Settings, instance: Instance | None) -> Settings:
    """Return the settings with the address on which the running installation listens, if there is one."""
    address = urlsplit(instance.url if instance else "")
    if not address.hostname or not address.port:
        return settings
    return settings.model_copy(update={"host": address.hostname, "port": address.port})


def _acquire(file: IO[str], path: Path) -> None:
    deadline = time.monotonic() + NOTE_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _read(path)
            if holder.pid or time.monotonic() > deadline:
                raise AlreadyRunning(holder) from None
            time.sleep(0.02)
        else:
            return


def _write(path: Path, text: str) -> None:
    with path.open("r+") as file:
        file.truncate()
        file.write(text)


def _read(path: Path) -> Instance:
    """Return the instance in the lock file; its process id is 0 if the holder has not written it yet."""
    try:
        content = json.loads(path.read_text())
        return Instance(int(content["pid"]), str(content["url"]))
    except (ValueError, KeyError):
        return Instance(0, "")
