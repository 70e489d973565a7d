"""Train two recipes through the service with three seeds each, as evidence of learning.

    python -m benchmarks.learning          starts a separate service, takes about 5 minutes on 2 cores
    python -m benchmarks.learning --seeds 0

The results are written to results.json and results.md in this directory; `make docs` copies the tables
into docs/.
"""

import argparse
import csv
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from backend.config.recipes import RECIPES
from benchmarks.common.service import ENDED_STATUSES, Service, machine

RESULTS_PATH = Path(__file__).parent / "results.json"
RECIPE_NAMES = ("demo_healthy", "demo_collapse")


def main() -> None:
    """Train the recipes and write their table."""
    parser = argparse.ArgumentParser(description="Run the recipes and write down what they learned.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    seeds = parser.parse_args().seeds
    with tempfile.TemporaryDirectory(prefix="grpolab-evidence-") as state:
        service = Service(state)
        try:
            service.wait()
            runs = launch_and_wait(service, seeds)
            rows = [measured(service, run) for run in runs]
        finally:
            service.stop()
    measured_with = machine()
    RESULTS_PATH.write_text(json.dumps({"machine": measured_with, "runs": rows}, indent=1) + "\n")
    text = caption(measured_with) + "\n\n" + tables(rows)
    RESULTS_PATH.with_suffix(".md").write_text(text + "\n")
    print(text)


def launch_and_wait(service: Service, seeds: list[int]) -> list[dict[str, Any]]:
    """Train every recipe with every seed in one experiment, and return the ended runs."""
    variants = [
        {"name": name, **RECIPES[name].config.model_dump(mode="json", exclude={"seed"})}
        for name in RECIPE_NAMES
    ]
    body = {"name": "learning evidence", "base": {}, "variants": variants, "seeds": seeds}
    launched_runs = service.http.post("/api/v1/experiments", json=body).raise_for_status().json()["runs"]
    while True:
        runs = [service.http.get(f"/api/v1/runs/{run['id']}").json() for run in launched_runs]
        ended_runs = [run for run in runs if run["status"] in ENDED_STATUSES]
        print(f"\r{len(ended_runs)} of {len(runs)} runs", end="", flush=True, file=sys.stderr)
        if len(ended_runs) == len(runs):
            print(file=sys.stderr)
            return runs
        time.sleep(2)


def measured(service: Service, run: dict[str, Any]) -> dict[str, Any]:
    """Return what a run learned, from the metrics that the service exports."""
    steps = metric_rows(service, run["id"])
    evaluations = [(int(row["step"]), float(row["eval/accuracy"])) for row in steps if row["eval/accuracy"]]
    trained_rows = [row for row in steps if row["reward/mean"]]
    seconds = trained_rows[-1].get("time/wall_seconds")
    accuracies = dict(evaluations)
    diagnosis = service.http.get(f"/api/v1/runs/{run['id']}/diagnosis").json()
    return {
        "recipe": run["variant"],
        "seed": run["seed"],
        "status": run["status"],
        "steps": int(trained_rows[-1]["step"]),
        "seconds": round(float(seconds), 1) if seconds else None,
        "accuracy": accuracies,
        "first_accuracy": evaluations[0][1],
        "best_accuracy": max(accuracy for _, accuracy in evaluations),
        "last_accuracy": evaluations[-1][1],
        "step_at_60_percent": next((step for step, accuracy in evaluations if accuracy >= 0.6), None),
        "first_reward": float(trained_rows[0]["reward/mean"]),
        "last_reward": float(trained_rows[-1]["reward/mean"]),
        "last_length": float(trained_rows[-1]["length/mean"]),
        "last_truncated_frac": float(trained_rows[-1]["length/truncated_frac"]),
        "last_entropy": float(trained_rows[-1]["policy/entropy"]),
        "verdict": diagnosis["verdict"],
        "onset": diagnosis["onset"],
        "cause": diagnosis["causes"][0]["title"] if diagnosis["causes"] else None,
    }


def metric_rows(service: Service, run_id: str) -> list[dict[str, str]]:
    """Return the metrics of a run's steps from its CSV export."""
    text = service.http.get(f"/api/v1/runs/{run_id}/metrics.csv").raise_for_status().text
    return list(csv.DictReader(text.splitlines()))


def caption(machine_facts: dict[str, Any]) -> str:
    """Return the sentence above the tables with sizes, machine and versions."""
    versions = (
        f"torch {machine_facts['torch']}, transformers {machine_facts['transformers']}, "
        f"Python {machine_facts['python']}"
    )
    prompts = RECIPES[RECIPE_NAMES[0]].config.evaluation.prompts
    return (
        f"Tiny policy on `sums`, accuracy on {prompts} held-out prompts, "
        f"greedy; default settings on {machine_facts['cores']} cores, one run per core; {versions}. "
        "Time is training time, evaluations and checkpoints included."
    )


def tables(rows: list[dict[str, Any]]) -> str:
    """Return two tables in Markdown: the healthy recipe and the collapsing one."""
    healthy = [row for row in rows if row["recipe"] == "demo_healthy"]
    collapse_rows = [row for row in rows if row["recipe"] == "demo_collapse"]
    lines = ["| demo_healthy | start | best | end | step at 60 % | time |", "|---|---|---|---|---|---|"]
    lines += [
        f"| seed {row['seed']} | {row['first_accuracy']:.1%} | {row['best_accuracy']:.1%} "
        f"| {row['last_accuracy']:.1%} | {row['step_at_60_percent'] or '–'} | {row['seconds']:.0f} s |"
        for row in healthy
    ]
    lines += [
        "",
        "| demo_collapse | accuracy start → best → end | reward start → end | verdict | first cause |",
    ]
    lines += ["|---|---|---|---|---|"]
    lines += [
        f"| seed {row['seed']} | {row['first_accuracy']:.1%} → {row['best_accuracy']:.1%} → "
        f"{row['last_accuracy']:.1%} | {row['first_reward']:.2f} → {row['last_reward']:.2f} "
        f"| {_verdict(row)} | {row['cause'] or 'none named'} |"
        for row in collapse_rows
    ]
    return "\n".join(lines)


def _verdict(row: dict[str, Any]) -> str:
    """Return the verdict and the steps between which the fall began."""
    onset = row["onset"]
    verdict = str(row["verdict"]).replace("_", " ")
    return f"{verdict}, began between steps {onset['healthy']} and {onset['sick']}" if onset else verdict


if __name__ == "__main__":
    main()
