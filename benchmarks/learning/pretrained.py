"""Train a pretrained model through the service, with the recipe `smollm2_sums` and changes of it.

    python -m benchmarks.learning.pretrained --state DIR               three seeds on one slot; hours on a
CPU
    python -m benchmarks.learning.pretrained --state DIR --arms all    every arm; a day on a CPU
    python -m benchmarks.learning.pretrained --state DIR --arms TRL    TRL on the same prompts, imported
    python -m benchmarks.learning.pretrained --state DIR --steps 2 --prompts 8          a rehearsal

Ctrl-C saves a checkpoint, and the same command continues from it; a run of TRL begins anew. `make model`
installs the model. An ended run keeps 3 to 5 GB of checkpoints in DIR. It adds a line to
results-pretrained.jsonl, from which the table in the .md file is made; `--out` names another file.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median
from typing import Any

from backend.config.recipes import RECIPES
from backend.config.run import RunConfig
from backend.experiments.matrix.inference import Contrast, contrast
from benchmarks.common.peers import ensure_python
from benchmarks.common.peers import run as run_peer
from benchmarks.common.service import ENDED_STATUSES, Service, machine
from benchmarks.learning.__main__ import measured, metric_rows
from worker.problems.mixture import build_mixture
from worker.prompt import Prompt

RECIPE_NAME = "smollm2_sums"
RESULTS_PATH = Path(__file__).with_name("results-pretrained.jsonl")
POLL_SECONDS = 5

FOUR_UPDATES = {"minibatches": 4}
"""Knobs for four updates per step, since ratios differ from 1 only after the first update."""

CHANGES_BY_ARM: dict[str, dict[str, Any]] = {
    "recipe": {},
    "token mean": {"objective": {"aggregation": {"type": "token_mean"}}},
    "no KL": {"objective": {"kl": {"type": "none"}}},
    "LoRA": {"policy": {"adapter": {"type": "lora"}}, "optimizer": {"lr": 1e-4}},
    "16 x 4": {"sampling": {"prompts_per_step": 16, "group_size": 4}},
    "four updates": {"updates": FOUR_UPDATES},
    "four updates, clip-higher": {
        "updates": FOUR_UPDATES,
        "objective": {"surrogate": {"type": "ppo_clip", "eps_high": 0.28}},
    },
    "four updates, sequence ratio": {
        "updates": FOUR_UPDATES,
        "objective": {
            "ratio": {"type": "seq_geo"},
            "surrogate": {"type": "ppo_clip", "eps_low": 3e-4, "eps_high": 4e-4},
        },
    },
}
"""Changes of the recipe by arm. The recipe averages over sequences, has a KL penalty of 0.04 and trains all
weights.
"""

BASELINES = {"four updates, clip-higher": "four updates", "four updates, sequence ratio": "four updates"}
"""Arms that are compared with another arm than the recipe."""

TRL_ARM = "TRL"
"""The recipe trained by TRL's GRPOTrainer on the same prompts, whose log is imported into the service."""

ARMS = (*CHANGES_BY_ARM, TRL_ARM)


def main() -> None:
    """Train the missing runs and write their table."""
    parser = argparse.ArgumentParser(description="Train the pretrained model of the recipe and measure it.")
    parser.add_argument("--state", type=Path, required=True, help="state directory, in which runs continue")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--arms", nargs="+", choices=[*ARMS, "all"], default=["recipe"])
    parser.add_argument("--steps", type=int, help="steps, if not those of the recipe")
    parser.add_argument("--prompts", type=int, help="held-out prompts, if not those of the recipe")
    parser.add_argument("--out", type=Path, default=RESULTS_PATH, help="file of the results")
    arguments = parser.parse_args()
    arms = ARMS if "all" in arguments.arms else arguments.arms
    service = Service(str(arguments.state))
    try:
        service.wait()
        for seed in arguments.seeds:
            for arm in arms:
                if (arm, seed) not in {(row["arm"], row["seed"]) for row in read_results(arguments.out)}:
                    base = base_config(arguments)
                    run = (
                        train_with_trl(service, seed, base, arguments.state)
                        if arm == TRL_ARM
                        else train(service, arm, seed, base)
                    )
                    add_result(arguments.out, {"arm": arm} | run_figures(service, run, base))
    finally:
        service.stop()
    text = table(read_results(arguments.out))
    arguments.out.with_suffix(".md").write_text(text + "\n")
    print(text)


def base_config(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the recipe's config, with steps and held-out prompts of the command line."""
    config = RECIPES[RECIPE_NAME].config.model_dump(mode="json", exclude={"seed"})
    if arguments.steps is not None:
        config["steps"] = arguments.steps
    if arguments.prompts is not None:
        config["evaluation"]["prompts"] = arguments.prompts
    return config


def train(service: Service, arm: str, seed: int, base: dict[str, Any]) -> dict[str, Any]:
    """Return the ended run of an arm and a seed, after continuing a run of an earlier call."""
    body = {
        "name": RECIPE_NAME,
        "base": base,
        "variants": [{"name": arm, **CHANGES_BY_ARM[arm]}],
        "seeds": [seed],
    }
    key = {"Idempotency-Key": f"{RECIPE_NAME}-{arm.replace(' ', '-')}-{seed}"}
    response = service.http.post("/api/v1/experiments", json=body, headers=key)
    if not response.is_success:
        raise SystemExit(f"the run was not launched: {response.text[:500]}")
    [launched_run] = response.json()["runs"]
    while (run := service.get(f"/runs/{launched_run['id']}"))["status"] not in ENDED_STATUSES:
        print(f"\r{arm}, seed {seed}: step {run['last_step'] or 0}", end="", flush=True, file=sys.stderr)
        time.sleep(POLL_SECONDS)
    print(file=sys.stderr)
    return dict(run)


def train_with_trl(service: Service, seed: int, base: dict[str, Any], state: Path) -> dict[str, Any]:
    """Return the imported run of TRL with the prompts and held-out problems that the service's run gets."""
    log = state / f"trl-{seed}.json"
    if not log.exists():
        write_trl_log(log, seed, base)
    response = service.http.post(
        "/api/v1/imports",
        params={"file": log.name, "experiment": RECIPE_NAME, "variant": TRL_ARM, "seed": str(seed)},
        content=log.read_bytes(),
        headers={"Content-Type": "application/json"},
    )
    if not response.is_success:
        raise SystemExit(f"TRL's log was not imported: {response.text[:500]}")
    return dict(service.get(f"/runs/{response.json()['run']}"))


def write_trl_log(log: Path, seed: int, base: dict[str, Any]) -> None:
    """Train with TRL, and write its trainer_state.json with the held-out accuracies."""
    config = RunConfig.model_validate(base | {"seed": seed})
    sampling = config.sampling
    mixture = build_mixture(
        config.problems, seed=seed, order=sampling.order, datasets_dir=Path("datasets"), hf_online=False
    )
    held_out = mixture.evaluation_set(config.evaluation.prompts)
    prompts = mixture.prompts(0, config.steps * sampling.prompts_per_step)
    mixture.close()
    with tempfile.TemporaryDirectory(prefix="grpolab-trl-") as directory:
        job = {
            "policy": str(Path(os.environ.get("MODELS_DIR", "models")).resolve() / config.policy.name),
            "directory": directory,
            "log": str(log.resolve()),
            "seed": seed,
            "threads": len(os.sched_getaffinity(0)),
            "steps": config.steps,
            "prompts_per_step": sampling.prompts_per_step,
            "group_size": sampling.group_size,
            "max_new_tokens": sampling.max_new_tokens,
            "kl_coef": base["objective"]["kl"]["coef"],
            "lr": config.optimizer.lr,
            "max_grad_norm": config.optimizer.max_grad_norm,
            "evaluate_every": config.evaluation.every,
            "prompts": [_row_of(prompt) for prompt in prompts],
            "held_out": [_row_of(prompt) for prompt in held_out],
        }
        run_peer(ensure_python("trl"), Path(__file__).with_name("trl_side.py"), job)


def _row_of(prompt: Prompt) -> dict[str, str]:
    """Return a prompt as a row of TRL's dataset."""
    return {"prompt": prompt.text, "answer": prompt.answer}


def run_figures(service: Service, run: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """Return what a run learned, how long its steps took, and the versions and device of the measurement."""
    rows = [row for row in metric_rows(service, run["id"]) if row["reward/mean"]]
    seconds = [float(row["time/step_seconds"]) for row in rows if row["time/step_seconds"]]
    sixth = len(rows) // 6 or 1
    return measured(service, run) | {
        "held_out": base["evaluation"]["prompts"],
        "lr": base["optimizer"]["lr"],
        "step_seconds": median(seconds),
        "device": run["attempts"][-1].get("device") or "",
        "first_training_accuracy": mean(float(row["reward/accuracy"]) for row in rows[:sixth]),
        "last_training_accuracy": mean(float(row["reward/accuracy"]) for row in rows[-sixth:]),
        "first_length": float(rows[0]["length/mean"]),
        "machine": machine(),
    }


def read_results(file: Path) -> list[dict[str, Any]]:
    """Return the figures of all runs that have ended."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def add_result(file: Path, row: dict[str, Any]) -> None:
    """Add a run's figures to the results, sorted by arm and seed."""
    rows = sorted([*read_results(file), row], key=lambda row: (ARMS.index(row["arm"]), row["seed"]))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def table(rows: list[dict[str, Any]]) -> str:
    """Return a line for each run and a line for each arm, compared with its baseline, in Markdown."""
    last_row = rows[-1]
    facts = last_row["machine"]
    caption = (
        f"SmolLM2-135M-Instruct (float32) on sums and differences of two numbers of one or two digits: "
        f"{last_row['held_out']} held-out problems, greedy, before and after training; "
        f"{last_row['device'] or 'CPU'}, torch {facts['torch']}, transformers {facts['transformers']}, "
        f"Python {facts['python']}. Every held-out accuracy has a standard error of up to "
        f"{(0.25 / last_row['held_out']) ** 0.5 * 100:.1f} points."
    )
    lines = [
        caption,
        "",
        "| arm | seed | steps | before | after | best | training, first → last sixth | tokens | step |",
        "|---|---|---|---|---|---|---|---|---|",
        *map(_row, rows),
        "",
        "Mean gain of each arm, and its mean difference from a baseline with the same seeds (95 % interval):",
        "",
        "| arm | n | held-out gain | baseline | held-out | training, last sixth | tokens |",
        "|---|---|---|---|---|---|---|",
        *_arm_rows(rows),
    ]
    return "\n".join(lines)


def _row(row: dict[str, Any]) -> str:
    return (
        f"| {row['arm']} | {row['seed']} | {row['steps']} | {row['first_accuracy']:.1%} "
        f"| {row['last_accuracy']:.1%} | {row['best_accuracy']:.1%} | {row['first_training_accuracy']:.1%} → "
        f"{row['last_training_accuracy']:.1%} | {row['first_length']:.1f} → {row['last_length']:.1f} "
        f"| {row['step_seconds']:.0f} s |"
    )


def _arm_rows(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each arm: its mean gain and the paired differences from its baseline."""
    for arm in ARMS:
        seeds = {row["seed"]: row for row in rows if row["arm"] == arm}
        if not seeds:
            continue
        gain = mean(100 * (row["last_accuracy"] - row["first_accuracy"]) for row in seeds.values())
        cells = [arm, str(len(seeds)), f"{gain:+.1f}"]
        if arm == "recipe":
            cells += ["", "", "", ""]
        else:
            baseline = BASELINES.get(arm, "recipe")
            base = {row["seed"]: row for row in rows if row["arm"] == baseline}
            cells += [baseline]
            for key, scale in (("last_accuracy", 100), ("last_training_accuracy", 100), ("last_length", 1)):
                values, base_values = (
                    {
                        seed: scale * row[key]
                        for seed, row in side.items()
                        if seed in seeds.keys() & base.keys()
                    }
                    for side in (seeds, base)
                )
                cells.append(_difference(contrast(values, base_values, "planned")))
        yield f"| {' | '.join(cells)} |"


def _difference(difference: Contrast | None) -> str:
    """Return a difference and its interval as text; an empty text without pairs."""
    if difference is None:
        return ""
    if difference.low is None or difference.high is None:
        return f"{difference.mean:+.1f}"
    return f"{difference.mean:+.1f} [{difference.low:+.1f}, {difference.high:+.1f}]"


if __name__ == "__main__":
    main()
