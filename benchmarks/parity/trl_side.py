"""Compute loss and gradient by TRL's own code: GRPOTrainer's advantages, corrections, masks and loss.

It runs in a separate environment. The trainer is built as a user builds it, with prescribed outputs of
model and sampler: `_generate` returns the completions, and the models answer with log-probabilities.
"""

import json
import logging
import sys
import tempfile
import warnings
from types import SimpleNamespace
from typing import Any

import torch
import transformers
import trl
from datasets import Dataset
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl.experimental.gmpo import GMPOConfig, GMPOTrainer

from benchmarks.parity.batches import GROUP_SIZE, ROWS, random_batch
from benchmarks.parity.cases import DIFFERENT_CASES, EQUAL_CASES, MAX_NEW_TOKENS, Case, every_combination
from benchmarks.step.workload import TINY_WORKLOAD

FIRST_PROMPT_ID = 5
"""The prompt of row i is the single token FIRST_PROMPT_ID + i, which identifies the row for a model."""
TRAINER_CLASSES = {"GRPOTrainer": (trl.GRPOTrainer, trl.GRPOConfig), "GMPOTrainer": (GMPOTrainer, GMPOConfig)}


class Answers(nn.Module):
    """A model with prescribed log-probabilities and entropies."""

    is_gradient_checkpointing = False

    def __init__(self, logprobs: Tensor, entropy: Tensor) -> None:
        super().__init__()
        self.logprobs, self.entropy = logprobs, entropy

    def forward(self, input_ids: Tensor, **_: Any) -> SimpleNamespace:
        rows = input_ids[:, 0] - FIRST_PROMPT_ID
        return SimpleNamespace(log_probs=self.logprobs[rows], entropy=self.entropy[rows], aux_loss=None)


def build(case: Case, directory: str, model: Any, tokenizer: Any, batch: dict[str, Any]) -> Any:
    """Return the trainer of a case whose sampler and rewards answer with `batch`."""
    kind, config = TRAINER_CLASSES[case.trainer]

    class RecordedSampler(kind):  # type: ignore[misc, valid-type]
        def _generate(self, prompts: list[str]) -> tuple[Any, ...]:
            end = self._tokenizer.eos_token_id
            ids = [
                [FIRST_PROMPT_ID] * (length - 1) + [FIRST_PROMPT_ID if is_truncated else end]
                for length, is_truncated in zip(batch["lengths"], batch["truncated"], strict=True)
            ]
            written_mask = [
                [int(not hole) for hole in holes[: len(row)]]
                for holes, row in zip(batch["holes"], ids, strict=True)
            ]
            sampler = [
                row[: len(completion_ids)] for row, completion_ids in zip(batch["sampler"], ids, strict=True)
            ]
            return (
                [[FIRST_PROMPT_ID + row] for row in range(len(prompts))],
                ids,
                written_mask if case.holes else None,
                [""] * len(prompts),
                sampler if case.with_sampler else None,
                {},
                None,
                None,
            )

    def reward(term: int) -> Any:
        def recorded_rewards(prompts: list[str], **_: Any) -> list[float]:
            return list(batch["rewards"][term])

        recorded_rewards.__name__ = f"reward_{term}"
        return recorded_rewards

    trainer = RecordedSampler(
        model=model,
        processing_class=tokenizer,
        reward_funcs=[reward(term) for term in range(case.terms)],
        train_dataset=Dataset.from_list([{"prompt": ""}] * ROWS),
        args=config(
            output_dir=directory,
            use_cpu=True,
            bf16=False,
            report_to="none",
            num_generations=GROUP_SIZE,
            per_device_train_batch_size=ROWS // case.parts,
            gradient_accumulation_steps=case.parts,
            num_iterations=2,
            max_completion_length=MAX_NEW_TOKENS,
            reward_weights=[1.0, 0.5][: case.terms],
            gradient_checkpointing=False,
            **case.trl,
        ),
    )
    trainer.use_vllm = "vllm_importance_sampling_mode" in case.trl
    trainer.current_gradient_accumulation_steps = case.parts
    return trainer


def loss_and_gradient(case: Case, trainer: Any, batch: dict[str, Any]) -> dict[str, Any]:
    """Return loss and gradient of one optimizer batch through TRL's scoring and loss."""

    def load_exact(name: str) -> Tensor:
        return torch.tensor(batch[name], dtype=torch.float64)

    entropy = load_exact("entropy")
    trainer.model = Answers(load_exact("old"), entropy)
    trainer.ref_model = Answers(load_exact("reference"), entropy)
    trainer.model.train()
    inputs = trainer._generate_and_score_completions([{"prompt": ""}] * ROWS)  # noqa: SLF001
    policy, spread = load_exact("new").requires_grad_(), entropy.requires_grad_()
    trainer.model = Answers(policy, spread)
    tensors = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
    loss = torch.zeros((), dtype=torch.float64)
    for indices in torch.arange(ROWS).split(ROWS // case.parts):
        microbatch = {name: value[indices] if value.ndim else value for name, value in tensors.items()}
        loss = loss + trainer.compute_loss(trainer.model, microbatch)
    gradient = torch.autograd.grad(loss, [policy, spread], allow_unused=True, materialize_grads=True)
    return {"loss": loss.item(), "gradient": [tensor.tolist() for tensor in gradient]}


def main() -> None:
    job = json.load(sys.stdin)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")
    transformers.utils.logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(TINY_WORKLOAD.policy, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(TINY_WORKLOAD.policy)
    # rewards and sampler log-probabilities become tensors of the default type, which is double like the
    # others
    torch.set_default_dtype(torch.float64)
    answers_by_case = []
    with tempfile.TemporaryDirectory() as directory:
        for case in [*EQUAL_CASES, *DIFFERENT_CASES, *every_combination()]:
            batch: dict[str, Any] = {}
            trainer = build(case, directory, model, tokenizer, batch)
            answers = []
            for seed in job["seeds"]:
                batch.update(random_batch(seed))
                answers.append(loss_and_gradient(case, trainer, batch))
            answers_by_case.append(answers)
    versions = {"trl": trl.__version__, "transformers": transformers.__version__, "torch": torch.__version__}
    print(json.dumps({"answers": answers_by_case, "versions": versions}))


if __name__ == "__main__":
    main()
