"""One round of schemathesis against the whole HTTP API.

A round has a fresh service over HTTP on SQLite or Postgres with some runs, and one client: an operator, a
viewer or nobody. The service itself counts requests and statuses."""

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from backend.http.access_log import REQUESTS
from backend.storage import live_workers
from backend.storage.models import Worker
from tests import servers
from tests.browser.service import TOKEN, VIEWER_TOKEN, Service, running_service

SCHEMATHESIS_CONFIG = Path(__file__).with_name("schemathesis.toml")
TOKEN_BY_CLIENT = {"operator": TOKEN, "viewer": VIEWER_TOKEN, "nobody": ""}

HEARTBEAT_SECONDS = 86_400.0
"""Age of a heartbeat that still counts, longer than any round takes."""

STREAM_PATH = "/api/v1/stream"
"""Path of an endless response, which tests/backend/service/live/test_live.py reads."""


class Round(NamedTuple):
    """Statuses of the service and violations found by schemathesis."""

    statuses: Counter[str]
    violations: dict[str, list[str]]
    """Operations by the check that they failed."""


def play(database: str, client: str, seed: int, examples: int, *, phases: str) -> Round:
    """Play one round."""
    counts_before = _counted_statuses()
    with tempfile.TemporaryDirectory(prefix="gl-") as name, _database(database, Path(name)) as url:
        directory = Path(name)
        limits: dict[str, Any] = {"writes_per_second": 0, "streams_per_token": 0}
        seen_long = patch.object(live_workers, "MAX_SILENT_SECONDS", HEARTBEAT_SECONDS)
        with running_service(directory / "state", url, **limits) as service, seen_long:
            _furnish(service)
            report = _schemathesis(service, directory, TOKEN_BY_CLIENT[client], seed, examples, phases)
            statuses = _counted_statuses() - counts_before
    return Round(statuses, {failure["type"]: failure["operations"] for failure in report["failures"]})


@contextmanager
def _database(kind: str, directory: Path) -> Iterator[str]:
    """Return the URL of an empty database."""
    (directory / "state").mkdir(mode=0o700)
    if kind == "sqlite":
        yield f"sqlite:///{directory / 'grpolab.db'}"
        return
    directory.chmod(0o711)
    server = servers.start_postgres(directory / "pg")
    try:
        yield server.url
    finally:
        servers.shut_down(server.pid)


def _furnish(service: Service) -> None:
    """Make a trained run, a queued one, and a worker whose only heartbeat counts for a whole round."""
    service.train(service.launch("trained"), 4, end="finished")
    service.launch("waiting")
    with service.sessions.begin() as session:
        session.add(Worker(id="w", host="h", pid=1, slot=0, device="cpu", stats={}, seen_at=time.time()))


def _schemathesis(
    service: Service, directory: Path, token: str, seed: int, examples: int, phases: str
) -> dict[str, Any]:
    argv = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(SCHEMATHESIS_CONFIG)]
    argv += ["run", _document(service, directory)]
    argv += ["--url", service.base, "--exclude-path", STREAM_PATH, "--phases", phases]
    argv += ["--seed", str(seed), "--max-examples", str(examples)]
    argv += [
        "--continue-on-failure",
        "--no-shrink",
        "--suppress-health-check",
        "all",
        "--warnings",
        "off",
        "--request-timeout",
        "120",
    ]
    argv += ["--report", "json", "--report-json-path", str(directory / "report.json")]
    argv += ["--header", f"Authorization: Bearer {token}"] if token else []
    output = subprocess.run(argv, check=False, capture_output=True, text=True, cwd=directory)
    try:
        report: dict[str, Any] = json.loads((directory / "report.json").read_text())
    except (FileNotFoundError, json.JSONDecodeError):  # it died before or while it wrote
        raise RuntimeError(output.stdout[-2000:] + output.stderr[-2000:]) from None
    if report["failures"] or report["errors"]:
        print(output.stdout)
    report["failures"] += [{"type": "error", "operations": [str(error)]} for error in report["errors"]]
    return report


def _document(service: Service, directory: Path) -> str:
    """Return the OpenAPI document as a file, since a client without a token cannot fetch it."""
    path = directory / "openapi.json"
    path.write_text(service.client.get(f"{service.base}/openapi.json").raise_for_status().text)
    return str(path)


def _counted_statuses() -> Counter[str]:
    """Return the number of responses of each status from this process."""
    counts: Counter[str] = Counter()
    for metric in REQUESTS.collect():
        for sample in metric.samples:
            if sample.name.endswith("_count"):
                counts[sample.labels["status"]] += int(sample.value)
    return counts
