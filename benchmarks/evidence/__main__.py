"""Train runs of the evidence again with their recorded settings.

    python -m benchmarks.evidence --claims c2 --seeds 2    the first seeds of one claim
    python -m benchmarks.evidence                          everything, more than half a day on 2 cores

`runs.jsonl.zst` contains settings and curves of each examined run (`zstdcat` prints it), and
docs/evidence.md the tables made from them; both are never changed. The command prints the final held-out
accuracy next to the recorded one.
"""

import argparse
import csv
import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path
from statistics import mean
from typing import Any

import zstandard

from backend.config.presets import PRESETS
from benchmarks.common.service import ENDED_STATUSES, Service
from benchmarks.common.sums import sums_rows, write_rows

RUNS_PATH = Path(__file__).parent / "runs.jsonl.zst"
ACCURACY_METRIC = "eval/accuracy"
DATA_ROWS = {"train": 2000, "eval": 1024}

Recorded = dict[str, Any]
"""Claim, variant, seed, the requested settings (`asked`), and the series of a run."""


def main() -> None:
    runs = recorded()
    parser = argparse.ArgumentParser(description="Train runs of the evidence again.")
    parser.add_argument("--claims", nargs="+", choices=sorted({run["claim"] for run in runs}))
    parser.add_argument("--seeds", type=int, help="only the first seeds of each claim")
    arguments = parser.parse_args()
    selected_runs = [run for run in runs if not arguments.claims or run["claim"] in arguments.claims]
    print(table(list(train_again(list(first_seeds(selected_runs, arguments.seeds))))))


def recorded() -> list[Recorded]:
    """Return the runs in the order of claims and seeds."""
    lines = zstandard.decompress(RUNS_PATH.read_bytes()).decode().splitlines()
    return sorted(map(json.loads, lines), key=lambda run: (run["claim"], run["seed"]))


def first_seeds(runs: Iterable[Recorded], count: int | None) -> Iterator[Recorded]:
    """Return the runs of the first seeds of each claim, or all."""
    for _, group in groupby(runs, key=lambda run: run["claim"]):
        claim_runs = list(group)
        seeds = sorted({run["seed"] for run in claim_runs})[:count]
        yield from (run for run in claim_runs if run["seed"] in seeds)


def train_again(runs: list[Recorded]) -> Iterator[tuple[Recorded, float]]:
    """Train each run again, and return it with its final held-out accuracy."""
    with tempfile.TemporaryDirectory(prefix="grpolab-evidence-") as state:
        data_directory = Path(state) / "data"
        data_directory.mkdir()
        write_rows(data_directory / "sums.jsonl", sums_rows(DATA_ROWS))
        service = Service(state, DATASETS_DIR=str(data_directory))
        try:
            service.wait()
            run_by_id = {
                run_id: run
                for _, group in groupby(runs, key=lambda run: (run["claim"], run["seed"]))
                for run_id, run in launch(service, list(group)).items()
            }
            for number, (run_id, run) in enumerate(run_by_id.items(), 1):
                wait_for(service, run_id)
                text = service.http.get(f"/api/v1/runs/{run_id}/metrics.csv").raise_for_status().text
                values = [row.get(ACCURACY_METRIC) for row in csv.DictReader(text.splitlines())]
                yield run, last(values)
                print(f"{number} of {len(run_by_id)}: {run['claim']}, {run['variant']}, seed {run['seed']}")
        finally:
            service.stop()


def launch(service: Service, runs: list[Recorded]) -> dict[str, Recorded]:
    """Queue the variants of a claim with one seed, and return the runs by id."""
    body = {
        "name": runs[0]["claim"],
        "base": runs[0]["asked"]["base"],
        "variants": [{"name": run["variant"], **run["asked"]["variant"]} for run in runs],
        "seeds": [runs[0]["seed"]],
    }
    answer = service.http.post("/api/v1/experiments", json=body).raise_for_status().json()
    by_variant = {run["variant"]: run for run in runs}
    return {run["id"]: by_variant[run["variant"]] for run in answer["runs"]}


def wait_for(service: Service, run_id: str) -> None:
    """Wait until a run has ended."""
    while service.get(f"/runs/{run_id}")["status"] not in ENDED_STATUSES:
        time.sleep(1)


def last(values: Iterable[Any]) -> float:
    """Return the last value of a metric."""
    return float([cell for cell in values if cell not in {"", None}][-1])


def table(repeated_runs: list[tuple[Recorded, float]]) -> str:
    """Return the mean accuracy of each variant, recorded and trained again, in Markdown."""
    lines = ["| claim | variant | n | recorded | again | |", "|---|---|---|---|---|---|"]
    groups: dict[tuple[str, str], list[tuple[Recorded, float]]] = {}
    for run, accuracy in repeated_runs:
        groups.setdefault((run["claim"], run["variant"]), []).append((run, accuracy))
    for (claim, variant), variant_runs in groups.items():
        recorded_mean = mean(last(run["series"][ACCURACY_METRIC]) for run, _ in variant_runs)
        repeated_mean = mean(accuracy for _, accuracy in variant_runs)
        note = "its preset has changed since" if has_changed(variant_runs[0][0]["asked"]) else ""
        lines.append(
            f"| {claim} | {variant} | {len(variant_runs)} "
            f"| {recorded_mean:.1%} | {repeated_mean:.1%} | {note} |"
        )
    return "\n".join(lines)


def has_changed(launch_request: Mapping[str, Any]) -> bool:
    """Return True if the preset of a run has changed since."""
    name = launch_request["variant"].get("preset") or launch_request["base"].get("preset")
    preset_changes = PRESETS[name].changes if name else {}
    return bool(json.loads(json.dumps(preset_changes)) != launch_request["preset"])


if __name__ == "__main__":
    main()
