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
from pathlib import Path

from benchmarks.common.installation import installation
from benchmarks.curves.beside import Comparison, Plan, measure_beside
from benchmarks.curves.ours import LocalService
from benchmarks.curves.peers import PEER_NAMES
from benchmarks.curves.results import beside_table

RESULTS_PATH = Path(__file__).parent / "results.md"


QUICK_PLAN = Plan(
    steps=400,
    tables=(60, 120),
    rounds=2,
    measurement_seconds=0.5,
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
    plan = QUICK_PLAN if arguments.quick else Plan()
    measurements = measure_systems(plan, arguments.databases, arguments.peers)
    text = f"{setting(plan)}\n\n{beside_table(measurements, plan.tables)}"
    print(text)
    if plan != QUICK_PLAN:
        RESULTS_PATH.write_text(text + "\n", encoding="utf-8")


def setting(plan: Plan) -> str:
    """Describe the machine and the amount of data."""
    return (
        f"{plan.runs} runs x {plan.steps:,} steps, a spike and a NaN in each curve; {os.cpu_count()} cores, "
        f"{platform.machine()}, Python {platform.python_version()}, load average {os.getloadavg()[2]:.1f}."
    )


def measure_systems(plan: Plan, databases: list[str], peers: list[str]) -> Comparison:
    """Measure this service on each database, and the peers, in turn."""
    with ExitStack() as stack:
        local_services = {}
        for database in databases:
            local_services[database] = LocalService(stack.enter_context(installation(database)))
            stack.callback(local_services[database].stop)
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="grpolab-curves-")))
        return measure_beside(local_services, peers, root, plan)


if __name__ == "__main__":
    main()
