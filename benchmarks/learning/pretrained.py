"""Learning of a pretrained model: the recipe `smollm2_sums` through the service, one seed after the other.

    python -m benchmarks.learning.pretrained --state DIR               three seeds on one slot; hours on a CPU
    python -m benchmarks.learning.pretrained --state DIR --steps 2 --prompts 8          a rehearsal

Ctrl-C saves a checkpoint, and the same command continues from it. `make model` installs the model. Each run
that has ended gets a line in results-pretrained.jsonl, beside its table in .md; with --out elsewhere.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from backend.config.recipes import RECIPES
from benchmarks.common.service import ENDED, Service, machine
from benchmarks.learning.__main__ import measured, metric_rows

RECIPE = "smollm2_sums"
RESULTS = Path(__file__).with_name("results-pretrained.jsonl")
LOOK_SECONDS = 5


def main() -> None:
    """Train, wait, tabulate."""
    parser = argparse.ArgumentParser(description="Train the pretrained model of the recipe and measure it.")
    parser.add_argument("--state", type=Path, required=True, help="state directory, in which runs continue")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, help="steps, where not those of the recipe")
    parser.add_argument("--prompts", type=int, help="held-out prompts, where not those of the recipe")
    parser.add_argument("--out", type=Path, default=RESULTS, help="file of the results")
    arguments = parser.parse_args()
    service = Service(str(arguments.state))
    try:
        service.wait()
        for seed in arguments.seeds:
            run = trained(service, seed, changes(arguments))
            keep(arguments.out, figures(service, run))
    finally:
        service.stop()
    rows = [json.loads(line) for line in arguments.out.read_text().splitlines()]
    text = table(rows)
    arguments.out.with_suffix(".md").write_text(text + "\n")
    print(text)


def changes(arguments: argparse.Namespace) -> dict[str, Any]:
    """The fields that differ from the recipe's."""
    fields: dict[str, Any] = {} if arguments.steps is None else {"steps": arguments.steps}
    return fields if arguments.prompts is None else fields | {"evaluation": {"prompts": arguments.prompts}}


def trained(service: Service, seed: int, fields: dict[str, Any]) -> dict[str, Any]:
    """The ended run of a seed; one that was launched in this state directory before goes on."""
    recipe = RECIPES[RECIPE].config.model_dump(mode="json", exclude={"seed"})
    merged = recipe | fields | {"evaluation": recipe["evaluation"] | fields.get("evaluation", {})}
    body = {"name": RECIPE, "base": {}, "variants": [{"name": RECIPE, **merged}], "seeds": [seed]}
    key = {"Idempotency-Key": f"{RECIPE}-{seed}"}
    answer = service.http.post("/api/v1/experiments", json=body, headers=key)
    if not answer.is_success:
        raise SystemExit(f"the run was not launched: {answer.text[:500]}")
    [launched] = answer.json()["runs"]
    while (run := service.get(f"/runs/{launched['id']}"))["status"] not in ENDED:
        print(f"\rseed {seed}: step {run['last_step'] or 0}", end="", flush=True, file=sys.stderr)
        time.sleep(LOOK_SECONDS)
    print(file=sys.stderr)
    return dict(run)


def figures(service: Service, run: dict[str, Any]) -> dict[str, Any]:
    """What a run learned, how long its steps took, and what they were measured with."""
    rows = [row for row in metric_rows(service, run["id"]) if row["reward/mean"]]
    seconds = [float(row["time/step_seconds"]) for row in rows if row["time/step_seconds"]]
    first, last = rows[: len(rows) // 6 or 1], rows[-(len(rows) // 6 or 1) :]
    return measured(service, run) | {
        "held_out": run["config"]["evaluation"]["prompts"],
        "lr": run["config"]["optimizer"]["lr"],
        "step_seconds": median(seconds),
        "device": run["attempts"][-1].get("device") or "",
        "first_training_accuracy": mean_of(first, "reward/accuracy"),
        "last_training_accuracy": mean_of(last, "reward/accuracy"),
        "first_length": float(rows[0]["length/mean"]),
        "machine": machine(),
    }


def mean_of(rows: list[dict[str, str]], metric: str) -> float:
    """The mean of a metric over steps."""
    return sum(float(row[metric]) for row in rows) / len(rows)


def keep(file: Path, row: dict[str, Any]) -> None:
    """Add a run's figures to the results, in place of older ones of the same seed."""
    lines = file.read_text().splitlines() if file.exists() else []
    others = [line for line in lines if json.loads(line)["seed"] != row["seed"]]
    kept = sorted([*others, json.dumps(row)], key=lambda line: int(json.loads(line)["seed"]))
    file.write_text("\n".join(kept) + "\n")


def table(rows: list[dict[str, Any]]) -> str:
    """One line per seed, in Markdown."""
    about = rows[-1]
    facts = about["machine"]
    caption = (
        f"SmolLM2-135M-Instruct (all weights, float32) on sums and differences of two numbers of one or two "
        f"digits: {about['held_out']} held-out problems, greedy, before and after training; n = {len(rows)} "
        f"seed{'s' * (len(rows) > 1)}; learning rate {about['lr']:g}; {about['device'] or 'CPU'}, "
        f"torch {facts['torch']}, transformers {facts['transformers']}, Python {facts['python']}."
    )
    lines = [
        caption,
        "",
        "| seed | steps | held-out before | after | best | in training, first → last sixth | tokens | step |",
        "|---|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['seed']} | {row['steps']} | {row['first_accuracy']:.1%} | {row['last_accuracy']:.1%} "
        f"| {row['best_accuracy']:.1%} | {row['first_training_accuracy']:.1%} → "
        f"{row['last_training_accuracy']:.1%} | {row['first_length']:.1f} → {row['last_length']:.1f} "
        f"| {row['step_seconds']:.0f} s |"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
