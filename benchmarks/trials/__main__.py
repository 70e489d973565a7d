"""Trials of the diagnosis' remedies, opened over HTTP on runs that were broken on purpose.

    python -m benchmarks.trials              run what is missing; --seeds 3 with fewer runs per arm
    python -m benchmarks.trials --table      only the table, from what is there
    python -m benchmarks.trials --pictures   only the pictures in docs/, of the first case trained again

Each case is written down when its trial is judged; Ctrl-C loses only the one that trains.
"""

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from backend.base.durable_files import publish
from benchmarks.common.service import ENDED, Service
from benchmarks.diagnosis.problems import service_with_problems
from benchmarks.diagnosis.recipes import PLANTED, PLANTS, RECIPES
from benchmarks.trials.picture import take_pictures

RECIPE = "grpo"
SEED = 0
RECORD = Path(__file__).parent / "trials.json"
RESULTS = Path(__file__).parent / "results.md"
HEAD = (
    "| planted | tried | steps | repeats | unchanged: fell | with it: fell | p | goal unchanged | with it |"
)


class Case(NamedTuple):
    """A plant of the suite, and what is tried against it."""

    plant: str
    severity: int
    changes: Mapping[str, Any] | None = None
    """None: the remedies of the diagnosis; else what a person writes down whose remedy is no field."""

    @property
    def name(self) -> str:
        return f"{self.plant} {self.severity + 1}"


CASES = (
    Case("lr", 0),
    Case("lr", 1),
    Case("wrong_answers", 2, {"problems": [{"name": "file", "path": "sums.jsonl"}]}),
    Case("cap", 2),
    Case("stale", 1),
    Case("no_rate", 1),
    Case("k1_sum", 0),
    Case("k1_sum", 2),
    Case("entropy_bonus", 2),
    Case("lr_start", 1),
)


def main() -> None:
    parser = argparse.ArgumentParser(description="Run the trials that are missing, and write the table.")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--table", action="store_true", help="train nothing")
    parser.add_argument("--pictures", action="store_true", help="retake the pictures")
    arguments = parser.parse_args()
    if arguments.pictures:
        run([CASES[0]], arguments.seeds, pictures=True)
        return
    missing = [case for case in CASES if case.name not in recorded()]
    if missing and not arguments.table:
        run(missing, arguments.seeds)
    text = report(recorded()) + "\n"
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


def recorded() -> dict[str, dict[str, Any]]:
    """The trials that have been judged, by the name of their case."""
    return json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}


def keep(case: Case, trial: Mapping[str, Any]) -> None:
    """Write down a trial, in one piece with all others."""
    names = ("found", "cause", "fork", "steps", "seeds", "verdict")
    found = recorded() | {case.name: {name: trial[name] for name in names}}
    draft = RECORD.with_suffix(".draft")
    draft.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    publish(draft, RECORD)
    RESULTS.write_text(report(found) + "\n", encoding="utf-8")


def run(missing: list[Case], seeds: int, *, pictures: bool = False) -> None:
    """Break a run for each case, and open a trial on it: to write it down, or to take pictures of it."""
    with service_with_problems() as service:
        healthy = ""
        for case in missing:
            if PLANTS[case.plant].when == "mid":
                healthy = healthy or ended(service, launch(service, {}))
            began = time.monotonic()
            broken_run = ended(service, broken(service, case, healthy))
            trial = try_remedies(service, broken_run, case, seeds)
            if pictures:
                take_pictures(service, broken_run)
            else:
                keep(case, trial)
            print(f"{case.name}: {time.monotonic() - began:.0f} s", flush=True)


def broken(service: Service, case: Case, healthy: str) -> str:
    """The id of the run that the plant breaks: from the start, or a fork of the healthy one."""
    plant = PLANTS[case.plant]
    changes = plant.severities[case.severity]
    if plant.when == "start":
        return launch(service, changes)
    return str(posted(service, f"/api/v1/runs/{healthy}/fork", {"step": PLANTED, "changes": changes})["id"])


def launch(service: Service, changes: Mapping[str, Any]) -> str:
    """The id of a run of the recipe."""
    base = RECIPES[RECIPE].config
    body = {"name": "trials", "base": base, "variants": [{"name": "run", **changes}], "seeds": [SEED]}
    return str(posted(service, "/api/v1/experiments", body)["runs"][0]["id"])


def try_remedies(service: Service, run_id: str, case: Case, seeds: int) -> dict[str, Any]:
    """The trial of a run, once it is judged."""
    body: dict[str, Any] = {"seeds": seeds}
    if case.changes is not None:
        body["arms"] = [{"name": "remedy", "changes": case.changes}]
    trial = posted(service, f"/api/v1/runs/{run_id}/trials", body)
    while trial["judged_at"] is None:
        time.sleep(2)
        (trial,) = service.http.get("/api/v1/trials", params={"run": run_id}).json()["items"]
    print("\n".join(trial["verdict"]["sentences"]), flush=True)
    return trial


def ended(service: Service, run_id: str) -> str:
    """The id, once the run has ended."""
    while service.http.get(f"/api/v1/runs/{run_id}").json()["status"] not in ENDED:
        time.sleep(0.5)
    return run_id


def posted(service: Service, path: str, body: Any) -> dict[str, Any]:
    """The answer to a request that must succeed."""
    answer = service.http.post(path, json=json.loads(json.dumps(body, default=dict)))
    if answer.is_error:
        raise SystemExit(f"{path}: {answer.text}")
    return dict(answer.json())


def report(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The table of the trials, one line per arm."""
    seeds = sorted({len(trial["seeds"]) for trial in found.values()})
    done = sum(case.name in found for case in CASES)
    arms = " or ".join(map(str, seeds))
    lines = [f"{done} of {len(CASES)} cases; recipe `{RECIPE}`, {arms} additional seeds in every arm.", ""]
    lines += [HEAD, "|---" * HEAD.count(" |") + "|"]
    for case in CASES:
        if (trial := found.get(case.name)) is not None:
            lines += _rows(case, trial)
    return "\n".join(lines)


def _rows(case: Case, trial: Mapping[str, Any]) -> list[str]:
    verdict = trial["verdict"]
    control, *arms = verdict["arms"]
    repeat = verdict["repeat"]
    same = "yes" if repeat["state"] == "repeats" else f"{repeat['state']}, step {repeat['step']}"
    steps = f"{trial['fork']['step']} to {trial['steps']}"
    return [
        f"| {case.name}: {trial['cause']} | {arm['name']}: {_changes(arm['changes'])} | {steps} | {same} "
        f"| {_share(control)} | {_share(arm)} | {_number(arm['p'])} "
        f"| {_number(control['goal_end'])} | {_number(arm['goal_end'])} |"
        for arm in arms
    ]


def _changes(changes: Mapping[str, Any]) -> str:
    return ", ".join(f"`{path}` {json.dumps(value)}" for path, value in changes.items())


def _share(arm: Mapping[str, Any]) -> str:
    """Recurrences of the runs that were judged, and what was counted apart."""
    apart = {name: arm[name] for name in ("unjudged", "failed", "stopped", "deleted") if arm[name]}
    more = "".join(f", {count} {name}" for name, count in apart.items())
    return f"{arm['recurred']} of {arm['recurred'] + arm['spared']}{more}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"


if __name__ == "__main__":
    main()
