"""Measure the share of planted collapses that the first remedy of the diagnosis heals.

    python -m benchmarks.diagnosis.heal                    plant, diagnose and try missing runs
    python -m benchmarks.diagnosis.heal --policy smollm2   the same with SmolLM2-135M-Instruct in MODELS_DIR
    python -m benchmarks.diagnosis.heal --table            only the table

Each plant is a fork of a healthy run. For those that fall, the ranked remedies of the diagnosis are tried
one after the other from the fork, next to runs without a change and with a third of the learning rate.
Ctrl-C loses one plant.
"""

import argparse
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from backend.config.recipes import RECIPES
from benchmarks.common.service import ENDED_STATUSES, Service
from benchmarks.diagnosis.problems import service_with_problems
from benchmarks.diagnosis.recipes import PLANTED_STEP, RECIPE_BY_NAME
from benchmarks.diagnosis.results import share_row

SEEDS = range(5)
MAX_REMEDIES = 3
BAD_VERDICTS = {"collapsed", "declining", "recovered", "never_learned"}

CORRECTNESS_REWARD = {"name": "correctness", "weight": 1.0}
CHANGES_BY_PLANT: dict[str, dict[str, Any]] = {
    "learning rate": {"optimizer": {"lr": 1e-2}},
    "format bonus": {
        "rewards": [{"name": "correctness", "weight": -1.0}, {"name": "think_format", "weight": 1.0}]
    },
    "entropy bonus": {"objective": {"entropy": {"type": "bonus", "coef": 0.3}}},
    "brevity": {
        "rewards": [CORRECTNESS_REWARD, {"name": "length", "weight": 10.0}],
        "optimizer": {"lr": 1e-3},
    },
    "KL of a sum": {"objective": {"kl": {"type": "k1", "coef": 1.0, "aggregation": "seq_sum"}}},
    "staleness": {"sampling": {"staleness": 8}, "updates": {"minibatches": 2}, "optimizer": {"lr": 1e-3}},
    "minibatches": {"updates": {"epochs": 8, "minibatches": 6}, "optimizer": {"lr": 1e-3}},
    "verifier": {"problems": [{"name": "file", "path": "wrong_100.jsonl"}]},
    "cap": {"sampling": {"max_new_tokens": 12}},
}
"""Changes of a healthy run by name. Without a penalty, a missing KL does this policy no harm, so the
planted KL pulls in the wrong direction.
"""


class Subject(NamedTuple):
    """A healthy run and the causes that are planted in its forks."""

    config: Mapping[str, Any]
    planted_step: int
    """Step from which the forks continue with the planted cause."""
    changes_by_plant: Mapping[str, Mapping[str, Any]]
    results_path: Path


_SMOLLM2_CONFIG = RECIPES["smollm2_sums"].config.model_dump(mode="json", exclude={"seed"})
_SMOLLM2_REWARD = _SMOLLM2_CONFIG["rewards"][0]
SUBJECTS = {
    "tiny": Subject(
        RECIPE_BY_NAME["dr_grpo"].config,
        PLANTED_STEP,
        CHANGES_BY_PLANT,
        Path(__file__).with_name("results-heal.md"),
    ),
    "smollm2": Subject(
        _SMOLLM2_CONFIG
        | {
            "steps": 40,
            "evaluation": _SMOLLM2_CONFIG["evaluation"] | {"every": 5},
            "checkpointing": {"every": 20, "keep": 2},
            "stop_rules": [],
        },
        20,
        {
            "learning rate": {"optimizer": {"lr": 3e-4}},
            "entropy bonus": {"objective": {"entropy": {"type": "bonus", "coef": 0.3}}},
            "brevity": {"rewards": [_SMOLLM2_REWARD, {"name": "length", "weight": 10.0}]},
            "entropy bonus of 3": {"objective": {"entropy": {"type": "bonus", "coef": 3.0}}},
            "right answers punished": {"rewards": [_SMOLLM2_REWARD | {"weight": -1.0}]},
            "cap": {"sampling": {"max_new_tokens": 2}},
        },
        Path(__file__).with_name("results-heal-smollm2.md"),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Try the remedies of planted collapses.")
    parser.add_argument("--policy", choices=SUBJECTS, default="tiny")
    parser.add_argument("--plants", nargs="+", help="names of plants, all by default")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--table", action="store_true", help="train nothing")
    arguments = parser.parse_args()
    subject = SUBJECTS[arguments.policy]
    if not arguments.table:
        plants = arguments.plants or list(subject.changes_by_plant)
        train(subject, [(plant, seed) for seed in arguments.seeds for plant in plants])
    text = table(read_record(subject), subject)
    subject.results_path.write_text(text, encoding="utf-8")
    print(text)


def read_record(subject: Subject) -> list[dict[str, Any]]:
    """Return the plants that have been tried."""
    path = subject.results_path.with_suffix(".jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def train(subject: Subject, plants: Sequence[tuple[str, int]]) -> None:
    """Train those of the plants and seeds that are not recorded yet, seed by seed."""
    recorded_plants = {(record["plant"], record["seed"]) for record in read_record(subject)}
    missing_plants = [plant for plant in plants if plant not in recorded_plants]
    if not missing_plants:
        return
    with service_with_problems() as service:
        parents: dict[int, str] = {}
        for plant, seed in missing_plants:
            if seed not in parents:
                parents[seed] = _wait_until_ended(service, _healthy_run(service, subject, seed))
            record = {"plant": plant, "seed": seed} | _try_remedies(service, parents[seed], subject, plant)
            with subject.results_path.with_suffix(".jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")
            print(json.dumps(record), flush=True)


def _healthy_run(service: Service, subject: Subject, seed: int) -> str:
    body = {
        "name": "heal",
        "base": subject.config,
        "variants": [{"name": "run"}],
        "seeds": [seed],
    }
    return str(_post(service, "/api/v1/experiments", body)["runs"][0]["id"])


def _try_remedies(service: Service, parent: str, subject: Subject, plant: str) -> dict[str, Any]:
    """Plant a cause and try the remedies until one heals."""
    fork = {"step": subject.planted_step, "changes": subject.changes_by_plant[plant]}
    run = _wait_until_ended(service, _post(service, f"/api/v1/runs/{parent}/fork", fork)["id"])
    diagnosis = service.http.get(f"/api/v1/runs/{run}/diagnosis").json()
    record = {"verdict": diagnosis["verdict"], "onset": diagnosis["onset"], "causes": [], "remedies": []}
    if diagnosis["verdict"] not in BAD_VERDICTS:
        return record
    causes = [cause for cause in diagnosis["causes"] if not cause["explained_by"]]
    record["causes"] = [cause["cause"] for cause in causes]
    lower_rate = {
        "optimizer.lr": service.http.get(f"/api/v1/runs/{run}").json()["config"]["optimizer"]["lr"] / 3
    }
    extra_arms = {"a third of the learning rate": lower_rate}
    for cause in [cause for cause in causes if cause["remedy"]["changes"]][:MAX_REMEDIES]:
        arms = {"remedy": cause["remedy"]["changes"]} | extra_arms
        counts = _trial(service, run, arms, subject.config["steps"])
        heals = {name: arm["spared"] == 1 for name, arm in counts.items()}
        if extra_arms:
            record["recurs"] = counts["no change"]["recurred"] == 1
            record["third"] = heals["a third of the learning rate"]
            extra_arms = {}
        record["remedies"].append(
            {"cause": cause["cause"], "changes": arms["remedy"], "heals": heals["remedy"]}
        )
        if heals["remedy"]:
            break
    return record


def _trial(service: Service, run: str, arms: Mapping[str, Mapping[str, Any]], steps: int) -> dict[str, Any]:
    """Return the counts of each arm of a trial with one seed, up to the last step of the run."""
    body = {
        "seeds": 1,
        "steps": steps,
        "arms": [{"name": name, "changes": changes} for name, changes in arms.items()],
    }
    trial = _post(service, f"/api/v1/runs/{run}/trials", body)
    while not trial["verdict"]["complete"]:
        time.sleep(2)
        trials = service.http.get("/api/v1/trials", params={"experiment": trial["experiment"]}).json()
        [trial] = trials["items"]
    return {arm["name"]: arm for arm in trial["verdict"]["arms"]}


def _post(service: Service, path: str, body: Any) -> Any:
    answer = service.http.post(path, json=json.loads(json.dumps(body, default=dict)))
    if answer.is_error:
        raise SystemExit(f"{path}: {answer.text}")
    return answer.json()


def _wait_until_ended(service: Service, run: str) -> str:
    while service.http.get(f"/api/v1/runs/{run}").json()["status"] not in ENDED_STATUSES:
        time.sleep(2)
    return run


def table(records: list[dict[str, Any]], subject: Subject) -> str:
    """Return the heal rates and all plants in Markdown."""
    fallen_records = [record for record in records if record["verdict"] in BAD_VERDICTS]
    lines = [
        f"{len(records)} runs with an injected fault, of which {len(fallen_records)} fell or did not learn.",
        "",
        "| repaired by | runs | share | 95 % interval |",
        "|---|---|---|---|",
        share_row("the first remedy", (_heals(record, 1) for record in fallen_records)),
        share_row("one of the first three", (_heals(record, MAX_REMEDIES) for record in fallen_records)),
        share_row("a third of the learning rate", (bool(record.get("third")) for record in fallen_records)),
        share_row(
            "no change, with another seed", (not record.get("recurs", True) for record in fallen_records)
        ),
        "",
        "| fault | fell | first cause | repaired by the first remedy | by a third of the learning rate |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *_rows(records, subject)]) + "\n"


def _rows(records: list[dict[str, Any]], subject: Subject) -> Iterator[str]:
    for plant in subject.changes_by_plant:
        plant_records = [record for record in records if record["plant"] == plant]
        fallen_records = [record for record in plant_records if record["verdict"] in BAD_VERDICTS]
        causes = sorted({record["causes"][0] if record["causes"] else "none" for record in fallen_records})
        healed_count = sum(_heals(record, 1) for record in fallen_records)
        rate_count = sum(bool(record.get("third")) for record in fallen_records)
        yield (
            f"| {plant} | {len(fallen_records)} of {len(plant_records)} | {', '.join(causes)} "
            f"| {healed_count} of {len(fallen_records)} "
            f"| {rate_count} of {len(fallen_records)} |"
        )


def _heals(record: Mapping[str, Any], count: int) -> bool:
    return any(remedy["heals"] for remedy in record["remedies"][:count])


if __name__ == "__main__":
    main()
