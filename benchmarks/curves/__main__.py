"""Curves and lists of runs beside MLflow, Aim, Trackio and TensorBoard; many clients; panels in Chromium.

    python -m benchmarks.curves                        everything, about half an hour
    python -m benchmarks.curves --quick                a small size, to try the benchmark itself
    python -m benchmarks.curves --parts pages clients  some of it: peers, clients, pages

The peers are installed into environments of their own, `.venv-mlflow` and so on, and asked as their pages
ask.
Each part is printed and written into results-PART.md beside this file once it is measured; `make docs` brings
them into docs/.
"""

import argparse
import os
import platform
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common.installation import installation
from benchmarks.curves.beside import Beside, Plan, measure_beside
from benchmarks.curves.crowd import Crowd, measure_crowd
from benchmarks.curves.ours import Ours
from benchmarks.curves.pages import METRICS, Drawn, visit_pages
from benchmarks.curves.peers import NAMES
from benchmarks.curves.results import beside_table, crowd_table, pages_table

HERE = Path(__file__).parent
PARTS = ("peers", "clients", "pages")


@dataclass(frozen=True, slots=True)
class Size:
    """How much there is and how often it is asked for."""

    runs: int = 50
    steps: int = 10_000
    tables: tuple[int, int] = (1_000, 10_000)
    rounds: int = 5
    seconds: float = 3.0
    """Of one measurement."""
    within: float = 600.0
    """Seconds in which a peer has to make the runs of a table."""
    crowd_seconds: float = 10.0
    panel_steps: int = 1_500
    visits: int = 5


QUICK = Size(
    steps=400,
    tables=(60, 120),
    rounds=2,
    seconds=0.5,
    within=5.0,
    crowd_seconds=3.0,
    panel_steps=200,
    visits=1,
)


def main() -> None:
    parser = argparse.ArgumentParser(description="curves beside other trackers, many clients, many panels")
    parser.add_argument("--quick", action="store_true", help="a small size, whose results are not kept")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument(
        "--databases", nargs="+", choices=("sqlite", "postgres"), default=["sqlite", "postgres"]
    )
    parser.add_argument("--peers", nargs="*", choices=NAMES, default=list(NAMES))
    arguments = parser.parse_args()
    size = QUICK if arguments.quick else Size()
    if "peers" in arguments.parts:
        publish("peers", beside_table(beside(size, arguments.databases, arguments.peers), size.tables), size)
    if "clients" in arguments.parts:
        publish("clients", crowd_table({each: crowd(size, each) for each in arguments.databases}), size)
    if "pages" in arguments.parts:
        publish("pages", pages_table({each: pages(size, each) for each in arguments.databases}), size)


def publish(part: str, table: str, size: Size) -> None:
    """Print what a part has measured, and keep it."""
    text = f"{setting(size)}\n\n{table}"
    print(text, flush=True)
    if size != QUICK:
        (HERE / f"results-{part}.md").write_text(text + "\n", encoding="utf-8")


def setting(size: Size) -> str:
    """The machine and the size."""
    return (
        f"{size.runs} runs x {size.steps:,} steps, a spike and a NaN in each curve; {os.cpu_count()} cores, "
        f"{platform.machine()}, Python {platform.python_version()}, load average {os.getloadavg()[2]:.1f}."
    )


def beside(size: Size, databases: list[str], peers: list[str]) -> Beside:
    """This service on each database, and the peers, asked by turns."""
    with ExitStack() as stack:
        ours = {}
        for database in databases:
            ours[database] = Ours(stack.enter_context(installation(database)))
            stack.callback(ours[database].stop)
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="grpolab-curves-")))
        plan = Plan(size.runs, size.steps, size.tables, size.rounds, size.seconds, size.within)
        return measure_beside(ours, peers, root, plan)


def crowd(size: Size, database: str) -> Crowd:
    """One client and twenty, by turns."""
    with installation(database) as place:
        ours = Ours(place)
        try:
            runs = ours.add_runs(size.runs, size.steps)
            ours.add_curves(runs, size.steps)
            return measure_crowd(ours, runs, rounds=size.rounds, seconds=size.crowd_seconds)
        finally:
            ours.stop()


def pages(size: Size, database: str) -> dict[str, Drawn]:
    """Thirty panels of all runs."""
    with installation(database) as place:
        ours = Ours(place)
        try:
            runs = ours.add_runs(size.runs, size.panel_steps, METRICS)
            ours.add_curves(runs, size.panel_steps, METRICS)
            return visit_pages(ours.serve(), runs, visits=size.visits)
        finally:
            ours.stop()


if __name__ == "__main__":
    main()
