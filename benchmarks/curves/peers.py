"""The peers' servers, and the requests of their pages for a chart of many runs and the table's first page."""

import contextlib
import json
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

import httpx2

from benchmarks.common.peers import ensure_python
from benchmarks.curves.data import METRIC_NAME, SPIKE_VALUE

BROWSER_ENCODINGS = "gzip, deflate, br, zstd"
PEER_NAMES = ("mlflow", "aim", "trackio", "tensorboard")
DOUBLE_BYTES = {SPIKE_VALUE: struct.pack("<d", SPIKE_VALUE), "nan": struct.pack("<d", float("nan"))}


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request of a page."""

    method: str
    path: str
    body: str = ""
    content_type: str = "application/json"

    def raw(self, port: int, **headers: str) -> str:
        """Return the request as sent."""
        fields = {
            "Host": f"127.0.0.1:{port}",
            "Accept-Encoding": BROWSER_ENCODINGS,
            **(
                {"Content-Type": self.content_type, "Content-Length": str(len(self.body))}
                if self.body
                else {}
            ),
            **headers,
        }
        lines = [
            f"{self.method} {self.path} HTTP/1.1",
            *(f"{name}: {field_value}" for name, field_value in fields.items()),
        ]
        return "\r\n".join([*lines, "", self.body])


@dataclass(frozen=True, slots=True)
class Kind:
    """Commands and requests of a peer."""

    command: Callable[[Path, int], list[str]]
    chart: Callable[[Sequence[str]], HttpRequest]
    table: HttpRequest
    count: Callable[[bytes], tuple[int, int]]
    """Function that counts the runs in a chart's answer in which the spike and the NaN are preserved."""


def _in_json(body: bytes) -> tuple[int, int]:
    """Count the spikes and NaN of a JSON answer, one of each per run."""
    numbers = body.decode().replace('"', "")
    return numbers.count("1000.0"), numbers.count("NaN")


def _in_doubles(body: bytes) -> tuple[int, int]:
    """Count the spikes and NaN of an answer in Aim's encoding, which holds arrays of doubles."""
    return body.count(DOUBLE_BYTES[SPIKE_VALUE]), body.count(DOUBLE_BYTES["nan"])


def _bin(peer: str, program: str) -> str:
    return str(ensure_python(peer).parent / program)


SHOW_TRACKIO = (
    "import sys, trackio; trackio.show(server_port=int(sys.argv[1]), open_browser=False, block_thread=True)"
)

AIM_QUERY = f'metric.name == "{METRIC_NAME}" and run.name.startswith("curve-")'

KIND_BY_PEER: dict[str, Kind] = {
    "mlflow": Kind(
        command=lambda root, port: [
            _bin("mlflow", "mlflow"),
            *("server", "--backend-store-uri", f"sqlite:///{root}/mlflow.db"),
            *("--artifacts-destination", str(root / "artifacts"), "--host", "127.0.0.1", "--port", str(port)),
            *("--workers", str(os.cpu_count())),
        ],
        chart=lambda ids: HttpRequest(
            "GET",
            "/ajax-api/2.0/mlflow/metrics/get-history-bulk-interval?"
            + urlencode(
                [("run_ids", run) for run in ids] + [("metric_key", METRIC_NAME), ("max_results", "320")]
            ),
        ),
        table=HttpRequest(
            "POST",
            "/ajax-api/2.0/mlflow/runs/search",
            json.dumps(
                {"experiment_ids": ["1"], "max_results": 100, "order_by": ["attributes.start_time DESC"]}
            ),
        ),
        count=_in_json,
    ),
    "aim": Kind(
        command=lambda root, port: [
            _bin("aim", "aim"),
            *("up", "--repo", str(root), "--host", "127.0.0.1", "--port", str(port), "--yes"),
        ],
        chart=lambda _: HttpRequest(
            "GET",
            f"/api/runs/search/metric/?q={quote(AIM_QUERY)}&p=50&report_progress=false",
        ),
        table=HttpRequest(
            "GET", "/api/runs/search/run/?q=&limit=45&exclude_params=true&report_progress=false"
        ),
        count=_in_doubles,
    ),
    "trackio": Kind(
        command=lambda _, port: [str(ensure_python("trackio")), "-c", SHOW_TRACKIO, str(port)],
        chart=lambda ids: HttpRequest(
            "POST",
            "/api/get_logs_batch",
            json.dumps(
                {
                    "project": "curves",
                    "runs": [{"run": run, "run_id": run} for run in ids],
                    "scalar_only": True,
                }
            ),
        ),
        table=HttpRequest("POST", "/api/get_runs_for_project", json.dumps({"project": "curves"})),
        count=_in_json,
    ),
    "tensorboard": Kind(
        command=lambda root, port: [
            _bin("tensorboard", "tensorboard"),
            *("--logdir", str(root), "--host", "127.0.0.1", "--port", str(port)),
        ],
        chart=lambda ids: HttpRequest(
            "POST",
            "/data/plugin/scalars/scalars_multirun",
            urlencode([("tag", METRIC_NAME)] + [("runs", run) for run in ids]),
            "application/x-www-form-urlencoded",
        ),
        table=HttpRequest("GET", "/data/runs"),
        count=_in_json,
    ),
}


class PeerServer:
    """A peer's server, started as documented, on a free port."""

    def __init__(self, peer: str, directory: Path) -> None:
        with socket.socket() as free_socket:
            free_socket.bind(("127.0.0.1", 0))
            self.port: int = free_socket.getsockname()[1]
        self.kind = KIND_BY_PEER[peer]
        self.runs: list[str] = []
        """Ids of the created runs."""
        peer_variables = {
            "TRACKIO_DIR": str(directory),
            "MLFLOW_DISABLE_TELEMETRY": "true",
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",  # seven processes that no page uses
            "HF_HUB_OFFLINE": "1",
        }
        with (directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                self.kind.command(directory, self.port),
                env={**os.environ, **peer_variables},
                cwd=directory,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def wait(self, seconds: float = 180) -> None:
        """Wait until the server answers."""
        deadline = time.monotonic() + seconds
        while True:
            with contextlib.suppress(httpx2.TransportError):
                if httpx2.get(f"http://127.0.0.1:{self.port}/", timeout=5).status_code < 500:
                    return
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not answer within {seconds:g} s")
            time.sleep(0.3)

    def fetch(self, request: HttpRequest) -> tuple[float, bytes]:
        """Return the seconds and the content of one request on a new connection."""
        headers = {"Content-Type": request.content_type} if request.body else {}
        started_at = time.perf_counter()
        response = httpx2.request(
            request.method,
            f"http://127.0.0.1:{self.port}{request.path}",
            content=request.body or None,
            headers=headers,
            timeout=600,
        )
        seconds = time.perf_counter() - started_at
        response.raise_for_status()
        return seconds, response.content

    def stop(self) -> None:
        """Stop the server and the processes that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, 15)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, 9)
            self.process.wait()
