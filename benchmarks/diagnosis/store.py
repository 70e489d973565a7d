"""The record of the suite's runs in `runs.jsonl.zst`, one line per run with all its metrics."""

import csv
import json
import math
from pathlib import Path
from typing import Any

import zstandard

from backend.base.durable_files import publish
from backend.config.metrics import MACHINE_PREFIXES
from benchmarks.common.service import Service
from benchmarks.diagnosis.recipes import Planted

RUNS_PATH = Path(__file__).parent / "runs.jsonl.zst"
SIGNIFICANT_DIGITS = 4
QUICK, SMALL = 9, 19
"""Compression levels after each run and at the end, of which the second takes seconds."""


def recorded() -> dict[Planted, dict[str, Any]]:
    """Return the runs that have been trained."""
    if not RUNS_PATH.exists():
        return {}
    lines = zstandard.decompress(RUNS_PATH.read_bytes()).decode().splitlines()
    records = [json.loads(line) for line in lines]
    return {Planted(*record["key"]): record for record in records}


def write(results: dict[Planted, dict[str, Any]], level: int = SMALL) -> None:
    """Replace the record atomically."""
    lines = "".join(json.dumps(results[key], allow_nan=False) + "\n" for key in sorted(results))
    draft = RUNS_PATH.with_suffix(".draft")
    draft.write_bytes(zstandard.compress(lines.encode(), level))
    publish(draft, RUNS_PATH)


def record_run(service: Service, run: dict[str, Any], key: Planted) -> None:
    """Record a run that has ended."""
    text = service.http.get(f"/api/v1/runs/{run['id']}/metrics.csv").text
    rows = list(csv.DictReader(text.splitlines()))
    names = [name for name in rows[0] if not name.startswith(MACHINE_PREFIXES)] if rows else []
    result = {
        "key": list(key),
        "status": run["status"],
        "reason": run["reason"],
        "config": run["config"],
        "steps": [int(row["step"]) for row in rows],
        "series": {name: [_rounded(row[name]) for row in rows] for name in sorted(names) if name != "step"},
    }
    results = recorded()
    results[key] = result
    write(results, QUICK)


def _rounded(text: str) -> float | str | None:
    if not text:
        return None
    number = float(text)
    return float(f"{number:.{SIGNIFICANT_DIGITS}g}") if math.isfinite(number) else text
