"""Train a recipe's policy with TRL's GRPOTrainer, in a separate environment.

The job on standard input names policy, settings, prompts and held-out problems. The log is TRL's own
trainer_state.json, to which the held-out accuracies are added, so that it can be imported as a user's.
"""

import json
import logging
import sys
from decimal import Decimal, InvalidOperation
from typing import Any

import torch
import transformers
import trl
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback

from worker.rewards.formats import lenient_answer


def score(text: str, expected: str) -> float:
    """Return the score that reasoning_gym gives the last number of a text: 1 for the expected number, a share
    for one that contains its digits, else 0.
    """
    answer, expected = lenient_answer(text).replace(",", ""), expected.replace(",", "")
    try:
        if Decimal(answer) == Decimal(expected):
            return 1.0
    except InvalidOperation:
        pass
    return len(expected) / len(answer) if expected in answer else 0.0


def correctness(completions: list[str], answer: list[str], **_columns: Any) -> list[float]:
    """Return the scores of completions. TRL passes the column `answer`."""
    return [score(text, expected) for text, expected in zip(completions, answer, strict=True)]


def accuracy(completions: list[str], answer: list[str], **_columns: Any) -> list[float]:
    """Return 1 for each completion with full marks, else 0."""
    return [float(value == 1.0) for value in correctness(completions, answer)]


class HeldOut(TrainerCallback):
    """Answers the held-out problems greedily before the first step and after every `every` steps."""

    def __init__(
        self, problems: list[dict[str, str]], every: int, max_new_tokens: int, tokenizer: Any
    ) -> None:
        self.rows: list[dict[str, float]] = []
        self._problems, self._every = problems, every
        self._max_new_tokens, self._tokenizer = max_new_tokens, tokenizer

    def on_train_begin(self, _arguments: Any, state: Any, _control: Any, *, model: Any, **_: Any) -> None:
        self._evaluate(model, state.global_step)

    def on_step_end(self, _arguments: Any, state: Any, _control: Any, *, model: Any, **_: Any) -> None:
        print(f"TRL: step {state.global_step}", file=sys.stderr, flush=True)
        if state.global_step % self._every == 0:
            self._evaluate(model, state.global_step)

    @torch.no_grad()
    def _evaluate(self, model: Any, step: int) -> None:
        texts = [problem["prompt"] for problem in self._problems]
        inputs = self._tokenizer(texts, return_tensors="pt", padding=True, padding_side="left")
        was_training = model.training
        model.eval()
        output = model.generate(
            **inputs,
            do_sample=False,
            max_new_tokens=self._max_new_tokens,
            pad_token_id=self._tokenizer.pad_token_id,
        )
        model.train(was_training)
        completions = self._tokenizer.batch_decode(
            output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True
        )
        answers = [problem["answer"] for problem in self._problems]
        marks = accuracy(completions, answers)
        self.rows.append({"step": step, "eval_accuracy": sum(marks) / len(marks)})


def main() -> None:
    """Train, and write the log to the job's path."""
    job = json.load(sys.stdin)
    torch.set_num_threads(job["threads"])
    logging.disable(logging.WARNING)
    tokenizer = AutoTokenizer.from_pretrained(job["policy"])
    held_out = HeldOut(job["held_out"], job["evaluate_every"], job["max_new_tokens"], tokenizer)
    trainer = trl.GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(job["policy"], dtype=torch.float32),
        processing_class=tokenizer,
        reward_funcs=[correctness, accuracy],
        train_dataset=Dataset.from_list(job["prompts"]),
        callbacks=[held_out],
        args=trl.GRPOConfig(
            output_dir=job["directory"],
            use_cpu=True,
            bf16=False,
            seed=job["seed"],
            max_steps=job["steps"],
            per_device_train_batch_size=job["prompts_per_step"] * job["group_size"],
            num_generations=job["group_size"],
            max_completion_length=job["max_new_tokens"],
            reward_weights=[1.0, 0.0],
            temperature=1.0,
            loss_type="grpo",
            beta=job["kl_coef"],
            learning_rate=job["lr"],
            lr_scheduler_type="constant",
            max_grad_norm=job["max_grad_norm"],
            gradient_checkpointing=False,
            shuffle_dataset=False,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            logging_steps=1,
            dataloader_pin_memory=False,
        ),
    )
    trainer.train()
    trainer.state.log_history = sorted(
        [*held_out.rows, *trainer.state.log_history], key=lambda row: row["step"]
    )
    trainer.state.save_to_json(job["log"])
    print(
        json.dumps(
            {"trl": trl.__version__, "transformers": transformers.__version__, "torch": torch.__version__}
        )
    )


if __name__ == "__main__":
    main()
