"""Run TRL's GRPOTrainer on the workload, in a separate environment, with prompts from standard input."""

import json
import logging
import sys
import tempfile
import time
from typing import Any

import torch
import transformers
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from workload import Workload, correctness, report


class Stopwatch(TrainerCallback):
    """A callback that measures the seconds of each step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_step_begin(self, *_args: Any, **_kwargs: Any) -> None:
        self.started_at = time.perf_counter()

    def on_step_end(self, *_args: Any, **_kwargs: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self.started_at)


def main() -> None:
    job = json.load(sys.stdin)
    workload = Workload(**job["workload"])
    torch.set_num_threads(job["threads"])
    logging.disable(logging.WARNING)
    is_gpu = workload.device == "cuda"
    dtype = torch.bfloat16 if is_gpu else torch.float32
    accuracy: list[float] = []

    def reward(completions: list[str], answer: list[str], **_kwargs: Any) -> list[float]:
        scores = [correctness(text, expected) for text, expected in zip(completions, answer, strict=True)]
        accuracy.append(sum(scores) / len(scores))
        return scores

    stopwatch = Stopwatch()
    with tempfile.TemporaryDirectory() as directory:
        trainer = trl.GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(workload.policy, dtype=dtype),
            processing_class=AutoTokenizer.from_pretrained(workload.policy),
            reward_funcs=reward,
            train_dataset=Dataset.from_list(job["prompts"]),
            callbacks=[stopwatch],
            args=trl.GRPOConfig(
                output_dir=directory,
                use_cpu=not is_gpu,
                bf16=is_gpu,
                seed=job["seed"],
                max_steps=workload.steps,
                per_device_train_batch_size=workload.prompts_per_step * workload.group_size,
                num_generations=workload.group_size,
                max_completion_length=workload.max_new_tokens,
                temperature=1.0,
                loss_type="grpo",
                beta=0.0,
                learning_rate=workload.learning_rate,
                lr_scheduler_type="constant",
                gradient_checkpointing=False,
                shuffle_dataset=False,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                logging_steps=1_000_000,
                dataloader_pin_memory=False,
            ),
        )
        trainer.train()
    versions = {"trl": trl.__version__, "transformers": transformers.__version__, "torch": torch.__version__}
    extra_figures = {"peak_bytes": torch.cuda.max_memory_allocated()} if is_gpu else {}
    report(workload, stopwatch.seconds, accuracy, versions, extra_figures)


if __name__ == "__main__":
    main()
