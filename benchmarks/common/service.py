"""Start a separate service for a benchmark as a user would, in a private directory."""

import contextlib
import os
import platform
import secrets
import signal
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2

ENDED_STATUSES = ("finished", "stopped", "failed")


class Service:
    """A service started as a process, on a free port unless one is given, with an authenticated client."""

    def __init__(
        self,
        state: str,
        *,
        command: str = "up",
        port: int = 0,
        checkout: Path | None = None,
        **variables: str,
    ) -> None:
        with socket.socket() as free_socket:
            free_socket.bind(("127.0.0.1", 0))
            self.port = port or free_socket.getsockname()[1]
        self.token = secrets.token_urlsafe()
        service_variables = {
            "STATE_DIR": state,
            "PORT": str(self.port),
            "GRPOLAB_TOKEN": self.token,
            **variables,
        }
        service_variables["PYTHONDONTWRITEBYTECODE"] = (
            ""  # at a user's second start, the sources are already compiled
        )
        stderr = subprocess.DEVNULL if command == "serve" else None  # the service writes a log
        argv = [sys.executable, "-m", "backend.service", command]
        self.process = subprocess.Popen(
            argv,
            cwd=checkout,
            env={**os.environ, **service_variables},
            stdout=subprocess.DEVNULL,
            stderr=stderr,
        )
        self.url = f"http://127.0.0.1:{self.port}"
        self.http = httpx2.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=60
        )

    def wait(self, seconds: float = 600) -> None:
        """Wait until a worker slot is ready and all processes have started."""
        deadline = time.monotonic() + seconds
        while not self.has_worker():
            if time.monotonic() > deadline:
                raise SystemExit(f"the service was not ready after {seconds:g} s")
            time.sleep(0.5)

    def wait_until_it_answers(self, seconds: float = 60) -> None:
        """Wait until requests are answered."""
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(httpx2.TransportError):
                if self.http.get("/healthz").is_success:
                    return
            if time.monotonic() > deadline:
                raise SystemExit(f"the service did not answer within {seconds:g} s")
            time.sleep(0.2)

    def get(self, path: str, **parameters: str) -> Any:
        """Return the JSON of an endpoint below /api/v1."""
        answer = self.http.get(f"/api/v1{path}", params=parameters)
        answer.raise_for_status()
        return answer.json()

    def has_worker(self) -> bool:
        """Return True if a slot is idle, or trains a run that this service has resumed."""
        try:
            answer = self.http.get("/api/v1/workers")
        except httpx2.TransportError:
            return False
        return answer.is_success and any(slot["status"] != "starting" for slot in answer.json()["items"])

    def stop(self) -> None:
        """Stop the service, whose running trainers save a checkpoint."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def machine() -> dict[str, Any]:
    """Return the versions and the machine of a measurement."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "transformers": version("transformers"),
    }
