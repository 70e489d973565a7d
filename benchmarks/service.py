"""A service of a benchmark's own, as a person starts it, in a directory that nobody else uses."""

import os
import platform
import secrets
import signal
import socket
import subprocess
import sys
import time
from importlib.metadata import version
from typing import Any

import httpx2

ENDED = ("finished", "stopped", "failed")


class Service:
    """`grpolab up` on a free port, with an HTTP client that holds its token."""

    def __init__(self, state: str, **variables: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.token = secrets.token_urlsafe()
        own = {"STATE_DIR": state, "PORT": str(port), "GRPOLAB_TOKEN": self.token, **variables}
        argv = [sys.executable, "-m", "backend.cli", "up"]
        self.process = subprocess.Popen(argv, env={**os.environ, **own}, stdout=subprocess.DEVNULL)
        self.url = f"http://127.0.0.1:{port}"
        self.http = httpx2.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}, timeout=60
        )

    def wait(self, seconds: float = 120) -> None:
        """Until it is ready to train, and nothing of it starts any more."""
        deadline = time.monotonic() + seconds
        while not self.is_idle():
            if time.monotonic() > deadline:
                raise SystemExit(f"the service was not ready after {seconds:g} s")
            time.sleep(0.5)

    def is_idle(self) -> bool:
        """Whether a slot waits with a trainer that has imported everything."""
        try:
            answer = self.http.get("/api/v1/workers")
        except httpx2.TransportError:
            return False
        return answer.is_success and any(slot["status"] == "idle" for slot in answer.json()["items"])

    def stop(self) -> None:
        """End it in order."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


def machine() -> dict[str, Any]:
    """What figures were measured with."""
    return {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "transformers": version("transformers"),
    }
