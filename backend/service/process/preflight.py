"""Preflight checks before the start; each failure is reported as one sentence with a remedy."""

import ipaddress
import socket
import tempfile
import time
from pathlib import Path

from sqlalchemy import make_url, text
from sqlalchemy.exc import SQLAlchemyError

from backend.base.durable_files import make_directory
from backend.base.errors import GrpoLabError
from backend.base.settings import Settings
from backend.http.pages import FRONTEND
from backend.storage.engine import open_engine

MIN_TOKEN_CHARACTERS = 20
"""Minimum length of a token, in characters, if the service listens on the network."""


SECRET_SETTINGS = ("grpolab_token", "grpolab_viewer_token", "grpolab_writer_key")


class CannotStart(GrpoLabError):
    """A condition outside this program prevents the start; the message says how to fix it."""

    status = 503
    title = "Cannot start"


def check_state_dir(settings: Settings) -> None:
    """Create the state directory, accessible only to this user, and check that it can be written."""
    try:
        make_directory(settings.state, mode=0o700)
        settings.state.chmod(0o700)
        settings.run_dir.mkdir(mode=0o700, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=settings.run_dir):
            pass
    except OSError as error:
        raise CannotStart(
            f"cannot write to the state directory {settings.state} ({error.strerror}): "
            "choose another, e.g. STATE_DIR=~/grpolab"
        ) from None


def check_frontend() -> None:
    """Check that the files of the pages exist; the image of a worker does not contain them."""
    if not (FRONTEND / "index.html").is_file():
        raise CannotStart(
            f"there are no pages in {FRONTEND}: install the package, or use a checkout or the API image"
        )


def check_exposure(settings: Settings) -> None:
    """Refuse to listen on the network without an explicitly configured token and host names."""
    if settings.grpolab_token and settings.grpolab_token == settings.grpolab_viewer_token:
        raise CannotStart(
            "GRPOLAB_VIEWER_TOKEN equals GRPOLAB_TOKEN, so every viewer would be an operator: choose another"
        )
    for name in SECRET_SETTINGS:
        if "${" in getattr(settings, name):  # the unexpanded text is not secret
            raise CannotStart(
                f"{name.upper()} is an unexpanded variable: set it to the token itself, or leave it empty"
            )
    if is_loopback(settings.host):
        return
    short = [name for name in SECRET_SETTINGS if 0 < len(getattr(settings, name)) < MIN_TOKEN_CHARACTERS]
    if short:
        raise CannotStart(
            f"{short[0].upper()} has fewer than {MIN_TOKEN_CHARACTERS} characters, too few for a service on "
            "a network: choose a longer one, e.g. `openssl rand -hex 32`"
        )
    if settings.grpolab_token and settings.allowed_hosts:
        return
    raise CannotStart(
        f"HOST={settings.host} would open the service to the network: choose a token and the names under "
        "which it is reached, e.g. HOST=0.0.0.0 GRPOLAB_TOKEN=$(openssl rand -hex 32) "
        "ALLOWED_HOSTS=my-server, or leave HOST out and use an SSH tunnel"
    )


def is_loopback(host: str) -> bool:
    """Return whether an address is only reachable from this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_port(settings: Settings, *, patience_seconds: float = 0.0) -> None:
    """Check that the port is free, waiting up to `patience_seconds` for a predecessor that is ending."""
    deadline = time.monotonic() + patience_seconds
    while (error := _bind_error(settings.host, settings.port)) is not None:
        if time.monotonic() < deadline:
            time.sleep(0.1)
            continue
        raise CannotStart(
            f"port {settings.port} on {settings.host} cannot be used ({error.strerror}): "
            f"choose another one, e.g. PORT={free_port()}"
        )


def _bind_error(host: str, port: int) -> OSError | None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as test_socket:
        test_socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            test_socket.bind((host.strip("[]"), port))
            test_socket.listen(1)
        except OSError as error:
            return error
    return None


def free_port() -> int:
    """Return a port that is currently unused."""
    with socket.socket() as test_socket:
        test_socket.bind(("127.0.0.1", 0))
        return int(test_socket.getsockname()[1])


def restore_mark(settings: Settings) -> Path:
    """Return the path of the file that exists while a backup is being restored."""
    return settings.state / "restoring"


def check_database(settings: Settings) -> None:
    """Check that the database can be opened; error messages contain its URL without the password."""
    if (marker := restore_mark(settings)).exists():
        raise CannotStart(
            f"a restore was interrupted: run it again (grpolab restore {marker.read_text().strip()})"
        )
    url = make_url(settings.effective_database_url)
    if url.get_backend_name() == "sqlite" and url.database:
        parent = Path(url.database).parent
        if not parent.is_dir():
            raise CannotStart(f"the directory of the database does not exist: {parent}")
    engine = open_engine(settings.effective_database_url, pool_size=1)
    try:
        with engine.connect() as connection:
            connection.execute(text("SELECT 1"))
    except TypeError:  # the driver returns bytes instead of text
        raise CannotStart(
            f"the database {url.render_as_string()} has no encoding (SQL_ASCII): make one with "
            "ENCODING 'UTF8' TEMPLATE template0"
        ) from None
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise CannotStart(f"cannot open the database {url.render_as_string()}: {reason}") from None
    finally:
        engine.dispose()
