"""Waiting times at scale: 10,000 runs with 100 million points, and a run of a million completions.

    python -m benchmarks.scale                     both databases, about half an hour and 20 GB of disk
    python -m benchmarks.scale --parts rollouts    the run of a million completions alone
    python -m benchmarks.scale --databases sqlite  one of them; --share 0.01 tries the benchmark itself
    python -m benchmarks.scale --cache DIRECTORY   keeps databases of completions there for the next time

Writes results.md and results-rollouts.md beside this file; `make docs` brings them into docs/.
"""

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from backend.db.engine import open_engine, open_sessions
from backend.db.migrate import upgrade
from benchmarks.scale.fill import Filled, Size, fill
from benchmarks.scale.inspect import measure_rollouts
from benchmarks.scale.measure import Figures, measure, percentile
from benchmarks.scale.texts import FilledRollouts, Rollouts, fill_rollouts
from benchmarks.service import Service
from tests import servers

HERE = Path(__file__).parent


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
            with installation(database) as (state, url):
                found[database] = one(state, url, size, rounds=rounds)
        _publish(table(found, size, rounds), "results.md", share)
    if "rollouts" in arguments.parts:
        of_rollouts = Rollouts().scaled(share)
        texts = {}
        for database in arguments.databases:
            with installation(database, arguments.cache, f"-{of_rollouts.completions}") as (state, url):
                texts[database] = inspected(state, url, of_rollouts, rounds=rounds)
        _publish(rollouts_table(texts, of_rollouts, rounds), "results-rollouts.md", share)


def _publish(text: str, name: str, share: float) -> None:
    print(text)
    if share == 1:
        (HERE / name).write_text(text + "\n", encoding="utf-8")


@contextmanager
def installation(database: str, cache: Path | None = None, name: str = "") -> Iterator[tuple[Path, str]]:
    """A state directory and the address of its database, new or, in a cache, as it was left."""
    with tempfile.TemporaryDirectory(prefix="grpolab-scale-") as directory:
        root = Path(directory) if cache is None else cache.resolve() / f"{database}{name}"
        state = root / "state"
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in (root, root.parent):
            each.chmod(0o711)  # Postgres may run as nobody
        if database == "sqlite":
            yield state, f"sqlite:///{state}/grpolab.db"
            return
        is_there = (root / "pg" / "data").is_dir()
        start = servers.serve_postgres if is_there else servers.start_postgres
        server = start(root / "pg", durable=True)
        try:
            yield state, server.url
        finally:
            servers.stop(server.pid)


def inspected(
    state: Path, url: str, size: Rollouts, *, rounds: int
) -> tuple[FilledRollouts, dict[str, list[float]]]:
    """Fill a database with completions unless it was filled before, start the service on it, measure."""
    note = state / "filled.json"
    if note.exists():
        filled = FilledRollouts(**json.loads(note.read_text()))
    else:
        upgrade(url)
        engine = open_engine(url)
        filled = fill_rollouts(open_sessions(engine), size)
        engine.dispose()
        note.write_text(json.dumps(asdict(filled)))
    service = Service(str(state), DATABASE_URL=url)
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


def one(state: Path, url: str, size: Size, *, rounds: int) -> tuple[Filled, Figures]:
    """Fill a database, start the service on it, measure."""
    upgrade(url)
    engine = open_engine(url)
    sessions = open_sessions(engine)
    filled = fill(sessions, size)
    print(f"{filled.points:,} points at {filled.points_per_second:,.0f}/s", flush=True)
    print(f"{filled.rollouts:,} rollouts at {filled.rollouts_per_second:,.0f}/s", flush=True)
    service = Service(str(state), DATABASE_URL=url)
    try:
        service.wait()
        return filled, measure(service, sessions, size, filled, rounds=rounds)
    finally:
        service.stop()
        engine.dispose()


def table(found: dict[str, tuple[Filled, Figures]], size: Size, rounds: int) -> str:
    """The figures in Markdown."""
    filled, figures = next(iter(found.values()))
    setting = (
        f"{size.runs:,} runs, {filled.points:,} metric points, {filled.rollouts:,} rollouts; each request "
        f"{rounds} times over HTTP, each page five times in Chromium with an empty cache; "
        f"{os.cpu_count()} cores, "
        f"{platform.machine()}, Python {platform.python_version()}, load average {os.getloadavg()[2]:.1f}."
    )
    lines = [setting, "", f"| median / p95 | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
    for name in figures.seconds:
        cells = (f"{_pair(each.seconds[name])} ms" for _, each in found.values())
        lines.append(f"| {name} | {' | '.join(cells)} |")
    for name in figures.pages:
        cells = ("{:.2f} s, {:.2f} s".format(*each.pages[name]) for _, each in found.values())
        lines.append(f"| page {name}: first paint, data drawn | {' | '.join(cells)} |")
    for what, cells in {
        "points stored a second": (f"{each.points_per_second:,.0f}" for each, _ in found.values()),
        "points packed for reading a second": (
            f"{each.packed_per_second:,.0f}" for each, _ in found.values()
        ),
        "rollouts packed and stored a second": (
            f"{each.rollouts_per_second:,.0f}" for each, _ in found.values()
        ),
        "paging through the whole list while runs are added: runs seen, added, missed, seen twice": (
            f"{each.walked:,}, {each.added}, {each.missed}, {each.walked_twice}" for _, each in found.values()
        ),
    }.items():
        lines.append(f"| {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _pair(seconds: list[float]) -> str:
    return f"{percentile(seconds, 0.5) * 1e3:.0f} / {percentile(seconds, 0.95) * 1e3:.0f}"


if __name__ == "__main__":
    main()
