"""Compare curves and lists of runs with MLflow, Aim, Trackio and TensorBoard.

    python -m benchmarks.curves            everything, about half an hour
    python -m benchmarks.curves --quick    a small size, to try the benchmark itself

The peers are installed into separate environments, `.venv-mlflow` and so on, and receive the requests of
their own pages. The results are written to results.md in this directory; `make docs` copies them into
docs/.
"""

import argparse
import os
import platform
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.installation import installation
from benchmarks.curves.beside import Comparison, Plan, measure_beside
from benchmarks.curves.ours import LocalService
from benchmarks.curves.peers import PEER_NAMES
from benchmarks.curves.results import beside_table

RESULTS_PATH = Path(__file__).parent / "results.md"


@dataclass(frozen=True, slots=True)
class Size:
    """Amount of data and number of requests."""

    runs: int = 50
    steps: int = 10_000
    tables: tuple[int, int] = (1_000, 10_000)
    rounds: int = 5
    seconds: float = 3.0
    """Duration of one measurement, in seconds."""
    create_seconds: float = 600.0
    """Time limit for a peer to create the runs of a table, in seconds."""


QUICK_SIZE = Size(
    steps=400,
    tables=(60, 120),
    rounds=2,
    seconds=0.5,
    create_seconds=5.0,
)


def main() -> None:
    parser = argparse.ArgumentParser(description="curves and lists of runs beside other trackers")
    parser.add_argument("--quick", action="store_true", help="a small size, whose results are not kept")
    parser.add_argument(
        "--databases", nargs="+", choices=("sqlite", "postgres"), default=["sqlite", "postgres"]
    )
    parser.add_argument("--peers", nargs="*", choices=PEER_NAMES, default=list(PEER_NAMES))
    arguments = parser.parse_args()
    size = QUICK_SIZE if arguments.quick else Size()
    measurements = measure_systems(size, arguments.databases, arguments.peers)
    text = f"{setting(size)}\n\n{beside_table(measurements, size.tables)}"
    print(text)
    if size != QUICK_SIZE:
        RESULTS_PATH.write_text(text + "\n", encoding="utf-8")


def setting(size: Size) -> str:
    """Describe the machine and the size."""
    return (
        f"{size.runs} runs x {size.steps:,} steps, a spike and a NaN in each curve; {os.cpu_count()} cores, "
        f"{platform.machine()}, Python {platform.python_version()}, load average {os.getloadavg()[2]:.1f}."
    )


def measure_systems(size: Size, databases: list[str], peers: list[str]) -> Comparison:
    """Measure this service on each database, and the peers, in turn."""
    with ExitStack() as stack:
        local_services = {}
        for database in databases:
            local_services[database] = LocalService(stack.enter_context(installation(database)))
            stack.callback(local_services[database].stop)
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="grpolab-curves-")))
        plan = Plan(size.runs, size.steps, size.tables, size.rounds, size.seconds, size.create_seconds)
        return measure_beside(local_services, peers, root, plan)


if __name__ == "__main__":
    main()
