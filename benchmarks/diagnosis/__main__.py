"""Evaluate the diagnosis on runs that are broken on purpose.

    python -m benchmarks.diagnosis --part build     train missing runs; --seeds 2 limits them to the first
seeds
    python -m benchmarks.diagnosis --healthy        train only missing healthy runs
    python -m benchmarks.diagnosis --later          the plants that were added later, in the unseen recipes
    python -m benchmarks.diagnosis --labels FILE    runs of a service whose completions people have
labelled
    python -m benchmarks.diagnosis --table          only the table, from the recorded runs

Ctrl-C loses only the runs in training.
"""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import httpx2

from backend.analysis.diagnosis.detectors import VERSION
from benchmarks.common.service import ENDED_STATUSES, Service
from benchmarks.diagnosis.labels import format_label_report, labelled_runs
from benchmarks.diagnosis.problems import service_with_problems
from benchmarks.diagnosis.recipes import (
    ALL_PLANTS,
    PLANTED_STEP,
    RECIPE_BY_NAME,
    Planted,
    later,
    suite,
)
from benchmarks.diagnosis.results import later_report, report
from benchmarks.diagnosis.store import record_run, recorded, write

RESULTS_PATH = Path(__file__).parent / "results.md"
MAX_QUEUED_RUNS = 6
"""Maximum number of runs in the queue."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Train what is missing of the suite, and judge the diagnosis on it."
    )
    parser.add_argument("--part", choices=("build", "unseen"), default="build")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--healthy", action="store_true", help="train no run that breaks")
    parser.add_argument("--later", action="store_true", help="train the plants that were added later")
    parser.add_argument("--labels", type=Path, metavar="FILE", help="an export of a search, as JSON lines")
    parser.add_argument("--url", default="http://127.0.0.1:8400", help="the service that has those runs")
    parser.add_argument("--table", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    if arguments.labels:
        print(_compare_labels(arguments.labels, arguments.url))
        return
    recorded_results = recorded()
    keys = later(arguments.seeds) if arguments.later else suite(arguments.part, arguments.seeds)
    missing_keys = [key for key in keys if key not in recorded_results]
    if arguments.healthy:
        missing_keys = [key for key in missing_keys if not key.plant]
    if missing_keys and not arguments.table:
        train(missing_keys)
    text = tables()
    RESULTS_PATH.write_text(text, encoding="utf-8")
    print(text)


def _compare_labels(path: Path, url: str) -> str:
    """Print how the diagnosis of labelled runs agrees with their labels. The token is GRPOLAB_TOKEN."""
    runs = labelled_runs(json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line)
    headers = {"Authorization": f"Bearer {os.environ.get('GRPOLAB_TOKEN', '')}"}
    with httpx2.Client(base_url=url, headers=headers, timeout=60) as client:

        def read_diagnosis(run: str) -> Any:
            return client.get(f"/api/v1/runs/{run}/diagnosis").raise_for_status().json()

        return format_label_report(runs, read_diagnosis)


def tables() -> str:
    """Return the tables of the runs that the first detectors had not seen."""
    results = recorded()
    keys = set(suite("unseen"))
    caption = (
        f"{len(results.keys() & keys)} runs that the first version of the detectors had not seen. The "
        f"current version, {VERSION}, was tuned after they had been judged, so it may do worse on other runs."
    )
    sections = [f"{caption}\n\n{report(results, 'unseen')}"]
    if later_runs := later_report(results):
        sections.append(later_runs)
    return "\n\n".join(sections) + "\n"


def train(missing_keys: list[Planted]) -> None:
    """Train the missing runs. A mid-run plant waits for the healthy run that it is forked from."""
    try:
        with service_with_problems() as service:
            _Queue(service, missing_keys).run_all()
    finally:
        write(recorded())


class _Queue:
    """Runs to be trained, runs in training, and healthy runs to fork from."""

    def __init__(self, service: Service, missing_keys: list[Planted]) -> None:
        self.service = service
        self.waiting_keys = missing_keys
        self.key_by_run: dict[str, Planted] = {}
        self.parents: dict[tuple[str, int], str] = {}
        self.count = len(missing_keys)

    def run_all(self) -> None:
        while self.waiting_keys or self.key_by_run:
            while self.waiting_keys and len(self.key_by_run) < MAX_QUEUED_RUNS:
                key = self.waiting_keys.pop(0)
                self.key_by_run[self.launch(key)] = key
            self.collect()
            time.sleep(0.5)

    def launch(self, key: Planted) -> str:
        """Queue a run and return its id, after its parent has been trained."""
        recipe = RECIPE_BY_NAME[key.recipe]
        plant = ALL_PLANTS[key.plant] if key.plant else None
        changes = dict(plant.severities[key.severity]) if plant else {}
        if plant is None or plant.when == "start":
            run_id = self._experiment(recipe.config, changes, key.seed)
            if plant is None:
                self.parents[key.recipe, key.seed] = run_id
            return run_id
        parent = self._parent(key)
        body = {"step": PLANTED_STEP, "changes": changes}
        response = self.service.http.post(f"/api/v1/runs/{parent}/fork", json=_plain(body))
        if response.is_error:
            raise SystemExit(f"{key}: {response.text}")
        return str(response.json()["id"])

    def _parent(self, key: Planted) -> str:
        parent_key = (key.recipe, key.seed)
        if parent_key not in self.parents:
            self.parents[parent_key] = self._experiment(RECIPE_BY_NAME[key.recipe].config, {}, key.seed)
        parent = self.parents[parent_key]
        while self.service.http.get(f"/api/v1/runs/{parent}").json()["status"] not in ENDED_STATUSES:
            self.collect()
            time.sleep(0.5)
        return parent

    def _experiment(self, base: Any, changes: Any, seed: int) -> str:
        body = {"name": "diagnosis", "base": base, "variants": [{"name": "run", **changes}], "seeds": [seed]}
        response = self.service.http.post("/api/v1/experiments", json=_plain(body))
        if response.is_error:
            raise SystemExit(response.text)
        return str(response.json()["runs"][0]["id"])

    def collect(self) -> None:
        """Record the runs that have ended."""
        for run_id, key in list(self.key_by_run.items()):
            run = self.service.http.get(f"/api/v1/runs/{run_id}").json()
            if run["status"] in ENDED_STATUSES:
                record_run(self.service, run, key)
                del self.key_by_run[run_id]
                finished_count = self.count - len(self.waiting_keys) - len(self.key_by_run)
                print(
                    f"{finished_count} of {self.count}: {tuple(key)}, {run['status']} {run['reason']}",
                    flush=True,
                )


def _plain(body: Any) -> Any:
    return json.loads(json.dumps(body, default=dict))


if __name__ == "__main__":
    main()
