"""Measure response times with 10,000 runs of 100 million points, and with a run of a million completions.

    python -m benchmarks.scale                     both databases, about an hour and 20 GB of disk
    python -m benchmarks.scale --parts rollouts    only the run of a million completions
    python -m benchmarks.scale --databases sqlite  one of them; --share 0.01 tries the benchmark itself
    python -m benchmarks.scale --cache DIRECTORY   keeps databases of completions there for the next time

The results are written to results.md and results-rollouts.md in this directory; `make docs` copies them
into docs/.
"""

import argparse
import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path

from backend.storage.engine import open_engine, open_sessions
from backend.storage.migrate import upgrade
from benchmarks.common.installation import Installation, installation, vacuum
from benchmarks.common.service import Service
from benchmarks.scale.fill import Filled, Size, fill
from benchmarks.scale.inspect import measure_rollouts
from benchmarks.scale.measure import Figures, measure, percentile
from benchmarks.scale.texts import FilledRollouts, Rollouts, fill_rollouts

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class DatabaseFigures:
    """Measurements on one database."""

    contents: Filled
    figures: Figures


def main() -> None:
    parser = argparse.ArgumentParser(description="waiting times over a large record of runs")
    parser.add_argument(
        "--databases", nargs="+", choices=("sqlite", "postgres"), default=["sqlite", "postgres"]
    )
    parser.add_argument("--parts", nargs="+", choices=("runs", "rollouts"), default=["runs", "rollouts"])
    parser.add_argument("--cache", type=Path, help="directory in which filled databases of completions stay")
    parser.add_argument("--share", type=float, default=1.0, help="of everything, to try the benchmark itself")
    parser.add_argument("--rounds", type=int, default=40, help="requests of each kind")
    arguments = parser.parse_args()
    share, rounds = arguments.share, arguments.rounds
    if "runs" in arguments.parts:
        size = Size() if share == 1 else Size().scaled(share)
        by_database = {}
        for database in arguments.databases:
            with installation(database) as installed:
                by_database[database] = fill_and_measure(installed, size, rounds=rounds)
        _publish(table(by_database, size, rounds), "results.md", share)
    if "rollouts" in arguments.parts:
        rollouts_size = Rollouts().scaled(share)
        texts = {}
        for database in arguments.databases:
            with installation(database, arguments.cache, f"-{rollouts_size.completions}") as installed:
                texts[database] = inspected(installed, rollouts_size, rounds=rounds)
        _publish(rollouts_table(texts, rollouts_size, rounds), "results-rollouts.md", share)


def _publish(text: str, name: str, share: float) -> None:
    print(text)
    if share == 1:
        (HERE / name).write_text(text + "\n", encoding="utf-8")


def inspected(
    installed: Installation, size: Rollouts, *, rounds: int
) -> tuple[FilledRollouts, dict[str, list[float]]]:
    """Fill a database with completions if it is empty, start the service on it and measure."""
    note = installed.state / "filled.json"
    if note.exists():
        contents = FilledRollouts(**json.loads(note.read_text()))
    else:
        upgrade(installed.url)
        engine = open_engine(installed.url)
        contents = fill_rollouts(open_sessions(engine), size)
        engine.dispose()
        note.write_text(json.dumps(asdict(contents)))
    service = Service(str(installed.state), DATABASE_URL=installed.url)
    try:
        service.wait()
        return contents, measure_rollouts(service, contents, size, rounds=rounds)
    finally:
        service.stop()


def rollouts_table(
    by_database: dict[str, tuple[FilledRollouts, dict[str, list[float]]]], size: Rollouts, rounds: int
) -> str:
    """Return the response times of inspecting a run in Markdown."""
    contents, seconds = next(iter(by_database.values()))
    setting = (
        f"A run of {contents.completions:,} completions of {size.prompts:,} prompts, {size.steps:,} steps; "
        f"each request {rounds} times over HTTP; {os.cpu_count()} cores, {platform.machine()}, Python "
        f"{platform.python_version()}, load average {os.getloadavg()[2]:.1f}."
    )
    lines = [
        setting,
        "",
        f"| median / p95 | {' | '.join(by_database)} |",
        f"|---|{'---|' * len(by_database)}",
    ]
    for name in seconds:
        cells = (f"{_pair(waits[name])} ms" for _, waits in by_database.values())
        lines.append(f"| {name} | {' | '.join(cells)} |")
    for title, rates in {
        "rollouts packed and stored a second": (
            contents.stored_per_second for contents, _ in by_database.values()
        ),
        "completions indexed for search a second": (
            contents.indexed_per_second for contents, _ in by_database.values()
        ),
    }.items():
        lines.append(f"| {title} | {' | '.join(f'{rate:,.0f}' for rate in rates)} |")
    return "\n".join(lines)


def fill_and_measure(installed: Installation, size: Size, *, rounds: int) -> DatabaseFigures:
    """Fill a database, start the service on it and measure."""
    upgrade(installed.url)
    engine = open_engine(installed.url)
    sessions = open_sessions(engine)
    contents = fill(sessions, size)
    vacuum(engine)
    print(f"{contents.points:,} points at {contents.points_per_second:,.0f}/s", flush=True)
    print(f"{contents.rollouts:,} rollouts at {contents.rollouts_per_second:,.0f}/s", flush=True)
    service = Service(str(installed.state), DATABASE_URL=installed.url)
    try:
        service.wait()
        return DatabaseFigures(contents, measure(service, sessions, size, contents, rounds=rounds))
    finally:
        service.stop()
        engine.dispose()


def table(by_database: dict[str, DatabaseFigures], size: Size, rounds: int) -> str:
    """Return the figures in Markdown."""
    first = next(iter(by_database.values()))
    setting = (
        f"{size.runs:,} runs, {first.contents.points:,} metric points, {first.contents.rollouts:,} rollouts; "
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, load average "
        f"{os.getloadavg()[2]:.1f}. Each request {rounds} times over HTTP, one after the other. Pages five "
        "times in Chromium with an empty cache."
    )
    lines = [
        setting,
        "",
        f"| median / p95, ms | {' | '.join(by_database)} |",
        f"|---|{'---|' * len(by_database)}",
    ]
    for name in first.figures.seconds:
        cells = (_pair(figures.figures.seconds[name]) for figures in by_database.values())
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *_rates(by_database)])


def _rates(by_database: dict[str, DatabaseFigures]) -> list[str]:
    lines = [f"| | {' | '.join(by_database)} |", f"|---|{'---|' * len(by_database)}"]
    for name in next(iter(by_database.values())).figures.pages:
        page_times = (
            "{:.2f} s, {:.2f} s".format(*figures.figures.pages[name]) for figures in by_database.values()
        )
        lines.append(f"| page {name}: first paint, data drawn | {' | '.join(page_times)} |")
    for title, cells in {
        "points stored a second": (
            f"{figures.contents.points_per_second:,.0f}" for figures in by_database.values()
        ),
        "points sealed a second": (
            f"{figures.contents.sealed_per_second:,.0f}" for figures in by_database.values()
        ),
        "rollouts packed and stored a second": (
            f"{figures.contents.rollouts_per_second:,.0f}" for figures in by_database.values()
        ),
        "paging through the whole list while runs are added: runs seen, added, missed, seen twice": (
            f"{waits.walked_runs:,}, {waits.added_runs}, {waits.missed_runs}, {waits.walked_twice}"
            for waits in (figures.figures for figures in by_database.values())
        ),
    }.items():
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def _pair(seconds: list[float]) -> str:
    return f"{percentile(seconds, 0.5) * 1e3:.0f} / {percentile(seconds, 0.95) * 1e3:.0f}"


if __name__ == "__main__":
    main()
