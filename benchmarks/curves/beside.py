"""Measure one chart and the first page of the table, for this service and the peers, in turn."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.common.peers import ensure_python, run
from benchmarks.curves.data import METRIC_NAME, SPIKE_VALUE, make_names, write_curves
from benchmarks.curves.measure import ResponseStats, send_requests
from benchmarks.curves.ours import LocalService
from benchmarks.curves.peers import HttpRequest, PeerServer

CLIENT_COUNT = 20
"""Number of concurrent clients, measured in addition to a single client."""
SIDES_PATH = Path(__file__).parent / "sides.py"
RUNS_PAGE_REQUEST = HttpRequest("GET", "/api/v1/runs?sort=-created_at&limit=50")
"""First request of the page *Runs*."""


def make_chart_request(runs: Sequence[str], **parameters: str | int) -> HttpRequest:
    """Return the pages' request for one chart."""
    defaults = {
        "runs": ",".join(runs),
        "metrics": METRIC_NAME,
        "x": "step",
        "max_points": 500,
        "compact": "true",
    }
    query = "&".join(f"{name}={parameter}" for name, parameter in (defaults | parameters).items())
    return HttpRequest("GET", f"/api/v1/series?{query}")


@dataclass(slots=True)
class System:
    """A system and its measurements."""

    name: str
    peer: str = ""
    """Name of the peer, or "" for this service."""
    port: int = 0
    chart: str = ""
    """Request of the system's page for one chart of all runs. NUMBER in it makes each answer new."""
    table: str = ""
    loading_seconds: float = 0.0
    """Seconds until all points were stored."""
    cold_seconds: float = 0.0
    """Seconds for the first chart after the start of the server."""
    survived: tuple[int, int] = (0, 0)
    """Numbers of the chart's runs in which the spike and the NaN are preserved."""
    charts: dict[int, ResponseStats] = field(default_factory=dict)
    """Answers to chart requests, by number of clients."""
    tables: dict[tuple[int, int], ResponseStats] = field(default_factory=dict)
    """Answers to table requests, by number of runs and of clients."""


@dataclass(slots=True)
class Comparison:
    """All systems, and the peers that could not be measured, with the reason."""

    systems: list[System]
    reason_by_absent: dict[str, str]


@dataclass(frozen=True, slots=True)
class Plan:
    """Amount of loaded data and number of requests."""

    runs: int = 50
    steps: int = 10_000
    tables: tuple[int, int] = (1_000, 10_000)
    rounds: int = 5
    measurement_seconds: float = 3.0
    """Duration of one measurement, in seconds."""
    create_seconds: float = 600.0
    """Time limit for a peer to create the runs of a table, in seconds."""


def measure_beside(
    local_services: Mapping[str, LocalService], peers: Sequence[str], root: Path, plan: Plan
) -> Comparison:
    """Load everything, then send requests in turn, while the tables grow between the rounds."""
    write_curves(root / "curves", plan.runs, plan.steps)
    servers: dict[str, PeerServer] = {}
    comparison = Comparison(
        [
            _load_local(name, local_service, plan.runs, plan.steps)
            for name, local_service in local_services.items()
        ],
        {},
    )
    try:
        for peer in peers:
            try:
                system, servers[peer] = _load_peer(peer, root, make_names(plan.runs))
            except (RuntimeError, subprocess.CalledProcessError, httpx2.HTTPError) as error:
                comparison.reason_by_absent[peer] = str(error)
            else:
                comparison.systems.append(system)
        for system, clients, request in _turns(comparison.systems, plan, lambda system: system.chart):
            _send_requests(system, system.charts.setdefault(clients, ResponseStats()), request, clients, plan)
        servers_with_table = dict(servers)
        for size in plan.tables:
            for local_service in local_services.values():
                local_service.add_runs(size - local_service.count, 1)
                local_service.settle()
            for peer, server in list(servers_with_table.items()):
                if reason := _create_runs_until(peer, server, root, size, time_limit=plan.create_seconds):
                    comparison.reason_by_absent[f"The table of {size:,} runs of {peer}"] = reason
                    del servers_with_table[peer]
            measured_systems = [
                system
                for system in comparison.systems
                if not system.peer or system.peer in servers_with_table
            ]
            for system, clients, request in _turns(measured_systems, plan, lambda system: system.table):
                _send_requests(
                    system, system.tables.setdefault((size, clients), ResponseStats()), request, clients, plan
                )
    finally:
        for server in servers.values():
            server.stop()
    return comparison


def _send_requests(system: System, stats: ResponseStats, request: str, clients: int, plan: Plan) -> None:
    """Send requests. Errors of a peer are counted, and errors of this service end the benchmark."""
    may_fail = bool(system.peer)
    send_requests(
        stats, system.port, request, clients=clients, seconds=plan.measurement_seconds, may_fail=may_fail
    )


def _turns(
    systems: Sequence[System], plan: Plan, request: Callable[[System], str]
) -> Iterator[tuple[System, int, str]]:
    """Yield each system, number of clients and request, for every round."""
    for _ in range(plan.rounds):
        for clients in (1, CLIENT_COUNT):
            for system in systems:
                yield system, clients, request(system)


def _create_runs_until(peer: str, server: PeerServer, root: Path, size: int, *, time_limit: float) -> str:
    """Create runs until there are `size` of them, and return the reason if that takes too long."""
    print(f"{peer}: {size:,} runs", flush=True)
    run_count = len(server.runs)
    created = _create_runs_in_subprocess(
        peer, root, [f"run-{number:05}" for number in range(run_count, size)], time_limit=time_limit
    )
    server.runs += created["ids"]
    if len(server.runs) < size:
        seconds_per_run = created["seconds"] / max(1, len(created["ids"]))
        return f"making a run takes {seconds_per_run:.2f} s"
    if peer == "tensorboard":
        try:
            _wait_for_runs(server, size, time_limit)
        except RuntimeError as error:
            return str(error)
    return ""


def _load_local(database: str, local_service: LocalService, runs: int, steps: int) -> System:
    ids = local_service.add_runs(runs, steps)
    seconds = local_service.add_curves(ids, steps)
    service = local_service.serve()
    access = {"Authorization": f"Bearer {service.token}"}
    started_at = time.perf_counter()
    response = service.http.get(make_chart_request(ids).path).raise_for_status()
    cold_seconds = time.perf_counter() - started_at
    series = response.json()["series"]
    return System(
        name=f"GRPO Lab, {database}",
        port=service.port,
        chart=make_chart_request(ids, x_max="NUMBER").raw(service.port, **access),
        table=RUNS_PAGE_REQUEST.raw(service.port, **access),
        loading_seconds=seconds,
        cold_seconds=cold_seconds,
        survived=(
            sum(SPIKE_VALUE in curve["values"] for curve in series),
            sum(any(point["value"] == "NaN" for point in curve["non_finite"]) for curve in series),
        ),
    )


def _create_runs_in_subprocess(
    peer: str, root: Path, names: Sequence[str], curves: Path | None = None, *, time_limit: float = 3_600
) -> dict[str, Any]:
    directory = root / peer
    directory.mkdir(exist_ok=True)
    job = {
        "peer": peer,
        "directory": str(directory),
        "curves": str(curves) if curves else None,
        "names": list(names),
        "within": time_limit,
    }
    answer: dict[str, Any] = run(ensure_python(peer), SIDES_PATH, job | {"threads": 1})
    return answer


def _load_peer(peer: str, root: Path, names: Sequence[str]) -> tuple[System, PeerServer]:
    print(f"{peer}: {len(names)} curves", flush=True)
    created = _create_runs_in_subprocess(peer, root, names, root / "curves")
    server = PeerServer(peer, root / peer)
    server.runs += created["ids"]
    try:
        server.wait()
        if peer == "tensorboard":
            _wait_for_runs(server, len(names))
        chart = server.kind.chart(server.runs)
        cold_seconds, body = server.fetch(chart)
    except BaseException:
        server.stop()
        raise
    system = System(
        name=f"{peer} {created['version']}",
        peer=peer,
        port=server.port,
        chart=chart.raw(server.port),
        table=server.kind.table.raw(server.port),
        loading_seconds=created["seconds"],
        cold_seconds=cold_seconds,
        survived=server.kind.count(body),
    )
    return system, server


def _wait_for_runs(server: PeerServer, runs: int, seconds: float = 600) -> None:
    """Wait until TensorBoard, which polls its directory, has found all runs."""
    deadline = time.monotonic() + seconds
    while len(json.loads(server.fetch(server.kind.table)[1])) < runs:
        if time.monotonic() > deadline:
            raise RuntimeError(f"it had not read {runs:,} runs after {seconds:g} s")
        time.sleep(1)
