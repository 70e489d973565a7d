"""`make fuzz`: schemathesis against the whole HTTP interface, round after round.

A round is a fresh service over HTTP on SQLite or Postgres with some runs in it, and one client: an operator,
a viewer or nobody. Requests and statuses are counted by the service itself. Each is a line of ledger.jsonl.
"""

import argparse
import itertools
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from backend.http.access_log import REQUESTS
from backend.storage import live_workers
from backend.storage.models import Worker
from tests import servers
from tests.browser.service import TOKEN, VIEWER_TOKEN, Service, running

LEDGER = Path(__file__).with_name("ledger.jsonl")
CONFIG = Path(__file__).with_name("schemathesis.toml")
GOAL = 100_000

TOKENS = {"operator": TOKEN, "viewer": VIEWER_TOKEN, "nobody": ""}
ROUNDS = tuple(itertools.product(("sqlite", "postgres"), ("operator", "viewer", "operator", "nobody")))

ROUND_SECONDS = 86_400.0
"""Longer than any round takes."""

ENDLESS = "/api/v1/stream"
"""Its answer never ends; tests/backend/service/live/test_live.py reads it."""


class Round(NamedTuple):
    """One line of the ledger."""

    seed: int
    database: str
    client: str
    examples: int
    seconds: int
    requests: int
    statuses: dict[str, int]
    server_errors: int
    violations: dict[str, list[str]]
    """Operations by the check that they failed."""
    versions: dict[str, str]


def play(database: str, client: str, seed: int, examples: int, *, phases: str, only: str = "") -> Round:
    """One round."""
    started, before = time.monotonic(), _answered()
    with tempfile.TemporaryDirectory(prefix="gl-") as name, _database(database, Path(name)) as url:
        directory = Path(name)
        limits: dict[str, Any] = {"writes_per_second": 0, "streams_per_token": 0}
        seen_long = patch.object(live_workers, "SILENT_SECONDS", ROUND_SECONDS)
        with running(directory / "state", url, **limits) as service, seen_long:
            _furnish(service)
            report = _schemathesis(service, directory, TOKENS[client], seed, examples, phases, only)
            statuses = _answered() - before
    return Round(
        seed=seed,
        database=database,
        client=client,
        examples=examples,
        seconds=round(time.monotonic() - started),
        requests=statuses.total(),
        statuses=dict(sorted(statuses.items())),
        server_errors=sum(count for status, count in statuses.items() if status >= "5"),
        violations={failure["type"]: failure["operations"] for failure in report["failures"]},
        versions={name: version(name) for name in ("schemathesis", "fastapi", "pydantic", "sqlalchemy")}
        | {"python": platform.python_version()},
    )


@contextmanager
def _database(kind: str, directory: Path) -> Iterator[str]:
    """URL of an empty database."""
    (directory / "state").mkdir(mode=0o700)
    if kind == "sqlite":
        yield f"sqlite:///{directory / 'grpolab.db'}"
        return
    directory.chmod(0o711)
    server = servers.start_postgres(directory / "pg")
    try:
        yield server.url
    finally:
        servers.stop(server.pid)


def _furnish(service: Service) -> None:
    """A trained run, a waiting one, and a worker whose only heartbeat counts for a whole round."""
    service.train(service.launch("trained"), 4, end="finished")
    service.launch("waiting")
    with service.sessions.begin() as session:
        session.add(Worker(id="w", host="h", pid=1, slot=0, device="cpu", stats={}, seen_at=time.time()))


def _schemathesis(
    service: Service, directory: Path, token: str, seed: int, examples: int, phases: str, only: str
) -> dict[str, Any]:
    argv = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(CONFIG)]
    argv += ["run", _document(service, directory)]
    argv += ["--url", service.base, "--exclude-path", ENDLESS, "--phases", phases]
    argv += ["--include-path-regex", only] if only else []
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
    """The OpenAPI document as a file: who is nobody cannot fetch it."""
    path = directory / "openapi.json"
    path.write_text(service.client.get(f"{service.base}/openapi.json").raise_for_status().text)
    return str(path)


def _answered() -> Counter[str]:
    """How many answers of each status this process has given."""
    counts: Counter[str] = Counter()
    for metric in REQUESTS.collect():
        for sample in metric.samples:
            if sample.name.endswith("_count"):
                counts[sample.labels["status"]] += int(sample.value)
    return counts


def total() -> int:
    """Requests in the ledger."""
    return (
        sum(json.loads(line)["requests"] for line in LEDGER.read_text().splitlines())
        if LEDGER.exists()
        else 0
    )


def main() -> int:
    """Play rounds until the ledger holds enough requests; 1 when one of them found something."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--goal", type=int, default=GOAL, help="requests in the ledger at which to end")
    parser.add_argument("--examples", type=int, default=250, help="at most so many of an operation and phase")
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    parser.add_argument("--database", choices=("sqlite", "postgres"), help="rounds on this one only")
    parser.add_argument(
        "--only", default="", help="regular expression: paths to fuzz; not entered in the ledger"
    )
    options = parser.parse_args()
    rounds = [round_kind for round_kind in ROUNDS if options.database in (None, round_kind[0])]
    is_clean = True
    for number in itertools.count():
        if total() >= options.goal and not options.only:
            break
        database, client = rounds[number % len(rounds)]
        seed = options.seed + number
        print(f"seed {seed}: {client} on {database} ...", flush=True)
        done = play(
            database, client, seed, options.examples, phases="coverage,fuzzing,stateful", only=options.only
        )
        print(
            f"  {done.requests:,} requests, {done.server_errors} x 5xx, {done.violations}, {done.seconds} s",
            flush=True,
        )
        is_clean &= not (done.server_errors or done.violations)
        if options.only:
            break
        with LEDGER.open("a") as ledger:
            ledger.write(json.dumps(done._asdict()) + "\n")
    print(f"{total():,} requests in {LEDGER.name}")
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
