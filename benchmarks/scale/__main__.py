"""Waiting times at scale: 10,000 runs with 100 million points, and a run of a million completions.

    python -m benchmarks.scale                     both databases, about an hour and 20 GB of disk
    python -m benchmarks.scale --parts rollouts    the run of a million completions alone
    python -m benchmarks.scale --databases sqlite  one of them; --share 0.01 tries the benchmark itself
    python -m benchmarks.scale --cache DIRECTORY   keeps databases of completions there for the next time

Writes results.md and results-rollouts.md beside this file; `make docs` brings them into docs/.
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
class Found:
    """What was measured on one database."""

    filled: Filled
    waited: Figures


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
        found = {}
        for database in arguments.databases:
            with installation(database) as place:
                found[database] = one(place, size, rounds=rounds)
        _publish(table(found, size, rounds), "results.md", share)
    if "rollouts" in arguments.parts:
        of_rollouts = Rollouts().scaled(share)
        texts = {}
        for database in arguments.databases:
            with installation(database, arguments.cache, f"-{of_rollouts.completions}") as place:
                texts[database] = inspected(place, of_rollouts, rounds=rounds)
        _publish(rollouts_table(texts, of_rollouts, rounds), "results-rollouts.md", share)


def _publish(text: str, name: str, share: float) -> None:
    print(text)
    if share == 1:
        (HERE / name).write_text(text + "\n", encoding="utf-8")


def inspected(
    place: Installation, size: Rollouts, *, rounds: int
) -> tuple[FilledRollouts, dict[str, list[float]]]:
    """Fill a database with completions unless it was filled before, start the service on it, measure."""
    note = place.state / "filled.json"
    if note.exists():
        filled = FilledRollouts(**json.loads(note.read_text()))
    else:
        upgrade(place.url)
        engine = open_engine(place.url)
        filled = fill_rollouts(open_sessions(engine), size)
        engine.dispose()
        note.write_text(json.dumps(asdict(filled)))
    service = Service(str(place.state), DATABASE_URL=place.url)
    try:
        service.wait()
        return filled, measure_rollouts(service, filled, size, rounds=rounds)
    finally:
        service.stop()


def rollouts_table(
    found: dict[str, tuple[FilledRollouts, dict[str, list[float]]]], size: Rollouts, rounds: int
) -> str:
    """The waiting times of inspecting a run in Markdown."""
    filled, seconds = next(iter(found.values()))
    setting = (
        f"A run of {filled.completions:,} completions of {size.prompts:,} prompts, {size.steps:,} steps; "
        f"each request {rounds} times over HTTP; {os.cpu_count()} cores, {platform.machine()}, Python "
        f"{platform.python_version()}, load average {os.getloadavg()[2]:.1f}."
    )
    lines = [setting, "", f"| median / p95 | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
    for name in seconds:
        cells = (f"{_pair(each[name])} ms" for _, each in found.values())
        lines.append(f"| {name} | {' | '.join(cells)} |")
    for what, rates in {
        "rollouts packed and stored a second": (each.stored_per_second for each, _ in found.values()),
        "completions indexed for search a second": (each.indexed_per_second for each, _ in found.values()),
    }.items():
        lines.append(f"| {what} | {' | '.join(f'{rate:,.0f}' for rate in rates)} |")
    return "\n".join(lines)


def one(place: Installation, size: Size, *, rounds: int) -> Found:
    """Fill a database, start the service on it, measure."""
    upgrade(place.url)
    engine = open_engine(place.url)
    sessions = open_sessions(engine)
    filled = fill(sessions, size)
    vacuum(engine)
    print(f"{filled.points:,} points at {filled.points_per_second:,.0f}/s", flush=True)
    print(f"{filled.rollouts:,} rollouts at {filled.rollouts_per_second:,.0f}/s", flush=True)
    service = Service(str(place.state), DATABASE_URL=place.url)
    try:
        service.wait()
        return Found(filled, measure(service, sessions, size, filled, rounds=rounds))
    finally:
        service.stop()
        engine.dispose()


def table(found: dict[str, Found], size: Size, rounds: int) -> str:
    """The figures in Markdown."""
    first = next(iter(found.values()))
    setting = (
        f"{size.runs:,} runs, {first.filled.points:,} metric points, {first.filled.rollouts:,} rollouts; "
        f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, load average "
        f"{os.getloadavg()[2]:.1f}. Each request {rounds} times over HTTP, one after the other. Pages five "
        "times in Chromium with an empty cache."
    )
    lines = [setting, "", f"| median / p95, ms | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
    for name in first.waited.seconds:
        cells = (_pair(each.waited.seconds[name]) for each in found.values())
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", *_rates(found)])


def _rates(found: dict[str, Found]) -> list[str]:
    lines = [f"| | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
    for name in next(iter(found.values())).waited.pages:
        shown = ("{:.2f} s, {:.2f} s".format(*each.waited.pages[name]) for each in found.values())
        lines.append(f"| page {name}: first paint, data drawn | {' | '.join(shown)} |")
    for what, cells in {
        "points stored a second": (f"{each.filled.points_per_second:,.0f}" for each in found.values()),
        "points sealed a second": (f"{each.filled.sealed_per_second:,.0f}" for each in found.values()),
        "rollouts packed and stored a second": (
            f"{each.filled.rollouts_per_second:,.0f}" for each in found.values()
        ),
        "paging through the whole list while runs are added: runs seen, added, missed, seen twice": (
            f"{each.waited.walked:,}, {each.waited.added}, {each.waited.missed}, {each.waited.walked_twice}"
            for each in found.values()
        ),
    }.items():
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return lines


def _pair(seconds: list[float]) -> str:
    return f"{percentile(seconds, 0.5) * 1e3:.0f} / {percentile(seconds, 0.95) * 1e3:.0f}"


if __name__ == "__main__":
    main()
