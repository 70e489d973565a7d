"""Compare a training step with TRL's, on the same policy, prompts, batch and machine, in alternating
rounds.

    python -m benchmarks.step              the tiny policy, and a policy of 80 M parameters
    python -m benchmarks.step --only large
    python -m benchmarks.step --before DIRECTORY    also compare with the checkout of another version

TRL is installed in a separate environment, `.venv-trl`, on the first run, or imported by the interpreter
that `--trl` names. The results are written to results.md in this directory; `make docs` copies them into
docs/. On a GPU, `make gpu` times a step.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config

from benchmarks.common.peers import ensure_python, read_commit, run
from benchmarks.step.tables import table
from benchmarks.step.workload import TINY_WORKLOAD, Workload
from worker.problems.sums import Sums

HERE = Path(__file__).parent
FIGURES_PATH = HERE / "figures.json"
"""Measurements of each workload, so that one can be repeated without the others."""

VOCABULARY_SIZE = 32_000


def main() -> None:
    parser = argparse.ArgumentParser(description="seconds per training step, GRPO Lab against TRL")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=("tiny", "large"))
    parser.add_argument("--trl", help="an interpreter that can import TRL")
    parser.add_argument("--before", type=Path, help="the checkout of another version")
    arguments = parser.parse_args()
    tables = json.loads(FIGURES_PATH.read_text()) if FIGURES_PATH.exists() else {}
    with tempfile.TemporaryDirectory() as directory:
        if arguments.only in {None, "tiny"}:
            title = "tiny policy of 0.8 M parameters"
            tables["tiny"] = table(measure_rounds(TINY_WORKLOAD, arguments), TINY_WORKLOAD, title, arguments)
        if arguments.only in {None, "large"}:
            workload = Workload(large_policy(Path(directory) / "large"), 4, 4, 64, 1e-5, 1, 4)
            title = f"random Qwen3 of 80 M parameters, vocabulary {VOCABULARY_SIZE:,}"
            tables["large"] = table(measure_rounds(workload, arguments), workload, title, arguments)
    FIGURES_PATH.write_text(json.dumps(tables, indent=1) + "\n", encoding="utf-8")
    text = "\n\n".join(tables[name] for name in ("tiny", "large") if name in tables)
    print(f"\n{text}")
    (HERE / "results.md").write_text(text + "\n", encoding="utf-8")


def measure_rounds(workload: Workload, arguments: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Return the figures of each round of all sides."""
    problem = Sums(seed=0)
    samples = [problem.sample(index, "train") for index in range(workload.prompts_per_step * workload.steps)]
    prompts = [{"prompt": prompt.text, "answer": prompt.answer} for prompt in samples]
    job = {"workload": workload._asdict(), "threads": arguments.threads, "seed": 0, "prompts": prompts}
    figures_by_trainer: dict[str, list[dict[str, Any]]] = {"TRL": [], "GRPO Lab": []}
    earlier_name = f"GRPO Lab, {read_commit(arguments.before)}" if arguments.before else ""
    for number in range(arguments.rounds):
        figures_by_trainer["TRL"].append(
            run(arguments.trl or ensure_python("trl"), HERE / "trl_side.py", job)
        )
        figures_by_trainer["GRPO Lab"].append(run(sys.executable, HERE / "our_side.py", job))
        if earlier_name:
            figures = run(sys.executable, HERE / "our_side.py", job, arguments.before)
            figures_by_trainer.setdefault(earlier_name, []).append(figures)
        times = ", ".join(
            f"{name} {rounds[-1]['median_seconds']:.3f} s" for name, rounds in figures_by_trainer.items()
        )
        print(f"round {number + 1}: {times}", flush=True)
    return figures_by_trainer


def large_policy(directory: Path) -> str:
    """Return a policy of 80 M random weights that never ends early, so that both sides do equal work."""
    tokenizer = AutoTokenizer.from_pretrained(TINY_WORKLOAD.policy)
    tokenizer.add_tokens([f"<w{number}>" for number in range(VOCABULARY_SIZE - len(tokenizer))])
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY_SIZE,
        hidden_size=640,
        intermediate_size=1920,
        num_hidden_layers=12,
        num_attention_heads=10,
        num_key_value_heads=5,
        head_dim=64,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    return str(directory)


if __name__ == "__main__":
    main()
