"""TRL's GRPOTrainer with clients attached; runs in `.venv-trl`, its job on standard input.

With `loggers`, blocks of steps take turns: nothing, GRPO Lab, Trackio. Each gets the metrics and the
completions of its steps in the way in which its users attach it to TRL.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import trackio
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "backend" / "push" / "client"))
from grpolab import GRPOLabCallback  # noqa: E402

from benchmarks.step.workload import TINY, correctness  # noqa: E402

LOGGERS = ("nothing", "GRPO Lab", "Trackio")
PROJECT = "push-benchmark"


class Turns(TrainerCallback):
    """Lets the loggers take turns, and measures each: its calls, and all of its steps."""

    def __init__(self, ours: GRPOLabCallback, block: int) -> None:
        self.ours, self.block = ours, block
        self.trainer: Any = None
        self.steps: list[dict[str, Any]] = []
        self.calls = 0.0
        self.calls_cpu = 0.0

    def _now(self, step: int) -> str:
        return LOGGERS[(step - 1) // self.block % len(LOGGERS)]

    def _timed(self, call: Callable[[], Any]) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        call()
        self.calls += time.perf_counter() - wall
        self.calls_cpu += time.thread_time() - cpu

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.ours.on_train_begin(args, state, control, **kwargs)
        trackio.init(project=PROJECT, name="trl", embed=False)

    def on_step_begin(self, *_args: Any, **_kwargs: Any) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._now(state.global_step) == "GRPO Lab":
            self._timed(lambda: self.ours.on_step_end(args, state, control, **kwargs))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if "train_runtime" in logs:
            return
        now = self._now(state.global_step)
        if now == "GRPO Lab":
            self._timed(lambda: self.ours.on_log(args, state, control, logs=logs, **kwargs))
        if now == "Trackio":
            self._timed(lambda: self._to_trackio(dict(logs), state.global_step))
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        figures = {"wall": wall, "cpu": cpu, "calls": self.calls, "calls_cpu": self.calls_cpu}
        self.steps.append({"logger": now, "step": state.global_step, **figures})
        self.calls = self.calls_cpu = 0.0

    def _to_trackio(self, logs: dict[str, Any], step: int) -> None:
        """As TrackioCallback and GRPOTrainer.log do it."""
        trackio.log(logs, step=step)
        kept = self.trainer._logs  # noqa: SLF001
        table = {
            "step": [step] * len(kept["prompt"]), "prompt": list(kept["prompt"]),
            "completion": list(kept["completion"]),
            **{name: list(values) for name, values in kept["rewards"].items()},
            "advantage": list(kept["advantages"]),
        }  # fmt: skip
        trackio.log({"completions": trackio.Table(dataframe=pd.DataFrame(table))})

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.ours.on_train_end(args, state, control, **kwargs)
        trackio.finish()


def main() -> None:
    job = json.load(sys.stdin)
    torch.set_num_threads(job["threads"])
    logging.disable(logging.WARNING)
    os.chdir(job["directory"])
    prompts, group_size, tokens = job["sizes"]

    def reward(completions: list[str], answer: list[str], **_kwargs: Any) -> list[float]:
        return [correctness(text, right) for text, right in zip(completions, answer, strict=True)]

    trainer = trl.GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(TINY.policy, dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(TINY.policy),
        reward_funcs=reward,
        train_dataset=Dataset.from_list(job["prompts"]),
        args=trl.GRPOConfig(
            output_dir="out",
            run_name="trl on the tiny policy",
            use_cpu=True,
            bf16=False,
            seed=0,
            max_steps=job["steps"],
            per_device_train_batch_size=prompts * group_size,
            num_generations=group_size,
            max_completion_length=tokens,
            temperature=1.0,
            loss_type="grpo",
            beta=0.0,
            learning_rate=TINY.learning_rate,
            lr_scheduler_type="constant",
            gradient_checkpointing=False,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            logging_steps=1,
            dataloader_pin_memory=False,
        ),
    )
    ours = GRPOLabCallback(job["url"], job["token"], trainer=trainer, id=job["id"])
    turns = Turns(ours, job["block"]) if job["block"] else None
    if turns:
        turns.trainer = trainer
    trainer.add_callback(turns or ours)
    trainer.train()
    history = [row for row in trainer.state.log_history if "train_runtime" not in row]
    versions = {"trl": trl.__version__, "trackio": trackio.__version__, "torch": torch.__version__}
    print(
        "\n" + json.dumps({"history": history, "steps": turns.steps if turns else [], "versions": versions})
    )


if __name__ == "__main__":
    main()
