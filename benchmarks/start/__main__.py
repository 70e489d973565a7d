"""From the request that launches a run until it trains in a slot that is free, and the memory of what waits.

    python -m benchmarks.start
    python -m benchmarks.start --only cost --before DIRECTORY    beside the checkout of another version

Writes results.md beside this file; `make docs` brings it into docs/.
"""

import argparse
import json
import random
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.common.peers import ROOT, version_of
from benchmarks.common.service import ENDED, Service, machine, processor_seconds

HERE = Path(__file__).parent
FIGURES = HERE / "figures.json"
"""What was measured of each part, so that one can be measured again without the others."""

LOOK_SECONDS = 0.01
REPORT_SECONDS = 6.0
"""Workers report every five seconds: after this long, what they said is no older than the run before."""
WAIT_SECONDS = 120.0
STARTS = 3
SETTLE_SECONDS, IDLE_SECONDS = 20.0, 30.0
"""After a start, until nothing of it works any more; and how long the idle processes are watched."""
COSTS = {
    "the service, until it answers": "{:.2f} s",
    "all processes, until a trainer is ready": "{:.2f} s",
    "all processes while nothing runs, of a core": "{:.1%}",
}
"""What a start costs, and the form of its figures."""
QUICK = {
    "steps": 1,
    "sampling": {"prompts_per_step": 2, "group_size": 2, "max_new_tokens": 16},
    "evaluation": {"every": 0},
    "checkpointing": {"every": 0},
}


def main() -> None:
    parser = argparse.ArgumentParser(description="from launch to training")
    parser.add_argument("--runs", type=int, default=20, help="with a broker; half as many without")
    parser.add_argument("--only", choices=("launch", "memory", "cost"))
    parser.add_argument("--before", type=Path, help="the checkout of another version, for its cost")
    arguments = parser.parse_args()
    tables = json.loads(FIGURES.read_text(encoding="utf-8"))
    if arguments.only in {None, "launch"}:
        with_broker = measure(arguments.runs)
        without = measure(arguments.runs // 2, BROKER_URL=f"redis://127.0.0.1:{_closed_port()}/0")
        tables["launch"] = table(with_broker, without)
    if arguments.only in {None, "memory"}:
        tables["memory"] = memory_table()
    if arguments.only in {None, "cost"}:
        tables["cost"] = cost_table(arguments.before)
    FIGURES.write_text(json.dumps(tables, indent=1) + "\n", encoding="utf-8")
    text = "\n\n".join(tables.values())
    print(text)
    (HERE / "results.md").write_text(text + "\n", encoding="utf-8")


def measure(runs: int, **variables: Any) -> list[tuple[float, float]]:
    """Seconds from the request to the status `running` and to the first recorded step, for each run."""
    with tempfile.TemporaryDirectory(prefix="grpolab-start-") as state:
        service = Service(state, WORKER_SLOTS="1", **variables)
        try:
            return [start_one(service) for _ in range(runs)]
        finally:
            service.stop()


def memory_table() -> str:
    """Memory of the trainers that wait for runs, in Markdown."""
    lines = ["| free slots | memory of what waits to train in them |", "|---|---|"]
    for slots in (1, 8):
        with tempfile.TemporaryDirectory(prefix="grpolab-start-") as state:
            service = Service(state, WORKER_SLOTS=str(slots))
            try:
                until(lambda: _idle(service) == slots)  # noqa: B023 - called here
                lines.append(f"| {slots} | {_waiting(service) / 2**20:,.0f} MiB |")
            finally:
                service.stop()
    return "\n".join(lines)


def cost_table(before: Path | None) -> str:
    """Processor time of a start, and of what waits for work, in Markdown."""
    checkouts = {"now": ROOT} | ({version_of(before): before} if before else {})
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in checkouts}
    for _ in range(STARTS):
        for name, checkout in checkouts.items():
            found[name].append(cost_of_a_start(checkout))
    costs = [[median(column) for column in zip(*found[name], strict=True)] for name in checkouts]
    rows = zip(COSTS.items(), *costs, strict=True)
    return "\n".join(
        [
            f"| processor time, medians of {STARTS} starts by turns | {' | '.join(checkouts)} |",
            f"|---|{'---|' * len(checkouts)}",
            *(f"| {what} | {' | '.join(map(form.format, values))} |" for (what, form), *values in rows),
        ]
    )


def cost_of_a_start(checkout: Path) -> tuple[float, float, float]:
    """Seconds until the service answers and until a trainer is ready; the share of a core while idle."""
    with tempfile.TemporaryDirectory(prefix="grpolab-start-") as state:
        service = Service(state, checkout=checkout, WORKER_SLOTS="1")
        try:
            service.wait_until_it_answers()
            answers = processor_seconds([service.server()])
            until(service.is_idle)
            ready = processor_seconds(service.tree())
            time.sleep(SETTLE_SECONDS)
            before = processor_seconds(service.tree())
            time.sleep(IDLE_SECONDS)
            return answers, ready, (processor_seconds(service.tree()) - before) / IDLE_SECONDS
        finally:
            service.stop()


def _idle(service: Service) -> int:
    if not service.is_idle():
        return 0
    return sum(slot["status"] == "idle" for slot in service.get("/workers")["items"])


def _waiting(service: Service) -> int:
    """Bytes, of memory that several share the share of each."""
    trainers = [each for each in service.tree() if "worker.train" in each.cmdline()]
    return sum(int(each.memory_full_info().pss) for each in trainers)


def start_one(service: Service) -> tuple[float, float]:
    """One run, launched at any moment between two looks of the worker."""
    time.sleep(REPORT_SECONDS)
    until(service.is_idle)
    time.sleep(random.uniform(0, 1))
    body = {"name": "start", "base": QUICK, "variants": [{"name": "only"}], "seeds": [0]}
    asked = time.monotonic()
    answer = service.http.post("/api/v1/experiments", json=body).raise_for_status().json()
    address = f"/api/v1/runs/{answer['runs'][0]['id']}"
    until(lambda: service.http.get(address).json()["status"] != "queued")
    running = time.monotonic()
    until(lambda: service.http.get(address).json()["last_step"])
    trained = time.monotonic()
    until(lambda: service.http.get(address).json()["status"] in ENDED)
    return running - asked, trained - asked


def until(condition: Callable[[], object]) -> None:
    """Look again and again."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"it did not happen within {WAIT_SECONDS:.0f} s")
        time.sleep(LOOK_SECONDS)


def table(with_broker: list[tuple[float, float]], without: list[tuple[float, float]]) -> str:
    """The figures in Markdown."""
    facts = machine()
    setting = (
        f"A free slot on {facts['cores']} cores, SQLite, Python {facts['python']}; from the request "
        "that launches a run of one small step, median and worst."
    )
    lines = [
        setting,
        "",
        "| broker | runs | until it runs | until its first step is stored |",
        "|---|---|---|---|",
    ]
    for title, found in (("Valkey", with_broker), ("none that answers", without)):
        cells = [f"{median(times):.2f} / {max(times):.2f} s" for times in zip(*found, strict=True)]
        lines.append(f"| {title} | {len(found)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
