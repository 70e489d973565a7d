"""Tests of uploads to a real service that are cut off, killed or exceed the disk."""

import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import httpx
import pytest

from tests.ports import free_port
from tests.system.lab import ROOT, TOKEN, Client
from tests.waiting import wait_for

pytestmark = pytest.mark.nightly

MEGABYTE_BYTES = 1_000_000
HEADERS = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/octet-stream"}


class Service:
    """An API process without a worker."""

    def __init__(self, directory: Path):
        self.datasets = directory / "datasets"
        self._port = free_port()
        self.client = Client(self._port)
        self._env = os.environ | {
            "STATE_DIR": str(directory / "state"), "DATASETS_DIR": str(self.datasets),
            "PORT": str(self._port), "GRPOLAB_TOKEN": TOKEN,
            "BROKER_URL": f"filesystem://{directory / 'broker'}",
        }  # fmt: skip
        self.start()

    def start(self):
        command = (sys.executable, "-m", "backend.service", "serve")
        self.process = subprocess.Popen(command, cwd=ROOT, env=self._env, stderr=subprocess.DEVNULL)
        wait_for(self.client.is_alive)

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait(30)

    def upload(self, content, name="rows.jsonl"):
        """Upload a complete file and return the response."""
        address = f"{self.client.base}/api/v1/datasets"
        return httpx.post(address, params={"name": name}, content=content, headers=HEADERS, timeout=300)

    def begin_upload(self, sent: bytes, *, length: int | None):
        """Begin an upload of which this much has been sent; a length of None sends it in chunks."""
        connection = socket.create_connection(("127.0.0.1", self._port))
        size = "Transfer-Encoding: chunked" if length is None else f"Content-Length: {length}"
        fields = "".join(f"{name}: {header_value}\r\n" for name, header_value in HEADERS.items())
        first = f"POST /api/v1/datasets?name=a.jsonl HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
        body = sent if length is not None else f"{len(sent):x}\r\n".encode() + sent + b"\r\n"
        connection.sendall(f"{first}{fields}{size}\r\n\r\n".encode() + body)
        return connection

    def files(self):
        """Return the files in the upload directory, except for its lock."""
        return sorted(
            path.name for path in self.datasets.rglob("*") if path.is_file() and path.name != ".lock"
        )


@pytest.fixture(scope="module")
def running():
    directory = Path(tempfile.mkdtemp(prefix="gl-"))
    service = Service(directory)
    yield service
    service.kill(signal.SIGTERM)
    shutil.rmtree(directory)


@pytest.fixture
def service(running):
    """A running service without datasets."""
    yield running
    for item in running.client.get("/datasets")["items"]:
        running.client.call("DELETE", f"/api/v1/datasets/{item['sha256']}")
    assert running.files() == []


def rows(count: int, width: int = 60) -> bytes:
    """Return this number of different rows of about `width` bytes."""
    return b"".join(
        json.dumps({"prompt": f"{number}+1=?".ljust(width - 36), "answer": number}).encode() + b"\n"
        for number in range(count)
    )


def test_interrupted_uploads_leave_nothing_behind(service):
    content = rows(50_000)
    for number, end in enumerate((0, 1, 1000, MEGABYTE_BYTES, len(content) - 1) * 2):
        service.begin_upload(content[:end], length=None if number % 2 else len(content)).close()
    wait_for(lambda: service.files() == [])

    for end in (1000, len(content) - 1):
        connection = service.begin_upload(content[:end], length=len(content))
        wait_for(lambda: any(name.startswith(".draft-") for name in service.files()))
        service.kill()
        connection.close()
        assert service.files()  # a kill leaves no time to clean up
        service.start()
        assert service.files() == []

    assert service.upload(content).status_code == 201
    assert len(service.files()) == 2


def test_without_disk_space_an_upload_fails_with_one_sentence_and_leaves_nothing(service):
    # The kernel refuses any file of more than 2 MB to this process, as a full disk would.
    pid, kind = service.process.pid, resource.RLIMIT_FSIZE
    _, hard_limit = limits_before = resource.prlimit(pid, kind)
    resource.prlimit(pid, kind, (2 * MEGABYTE_BYTES, hard_limit))
    response = service.upload(rows(100_000))
    resource.prlimit(pid, kind, limits_before)
    assert response.status_code == 507
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["detail"].startswith(f"cannot write to DATASETS_DIR ({service.datasets}): ")
    assert service.files() == []
    assert service.client.get("/runs") == {"items": [], "next": None, "total": 0}
    assert service.upload(rows(100)).status_code == 201
