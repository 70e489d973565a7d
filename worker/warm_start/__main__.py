"""Train the tiny policies: `python -m worker.warm_start OUTPUT_DIRECTORY [--experts 8]`.

The training is supervised, on imperfect solutions of training-split sums, and takes a few minutes on two
cores. It wrote the policy `tiny`, and `tiny_moe` with experts. The file `card.json` of each policy holds its
seed, versions and result.
"""

import argparse
import json
import logging
import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random

import tokenizers
import torch
import transformers
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from worker.problems.sums import Sums
from worker.warm_start.solutions import Carelessness, imperfect_solution
from worker.warm_start.tokenizer import build_tokenizer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Recipe:
    """The recipe of a tiny policy."""

    experts: int = 0
    """Number of experts per layer, two of which process a token. 0 builds a dense model."""
    seed: int = 20250101
    steps: int = 2000
    batch_size: int = 48
    learning_rate: float = 5e-3
    warmup_steps: int = 50
    operands: int = 3
    low: int = 10
    high: int = 99
    carelessness: Carelessness = field(default_factory=Carelessness)


BALANCE_LOSS_WEIGHT = 0.01
"""Weight of the loss that spreads the tokens over the experts."""


def build_model(tokenizer: PreTrainedTokenizerFast, recipe: Recipe) -> PreTrainedModel:
    """Build an untrained Qwen3 model.

    It has 0.8 M parameters if it is dense, or 1.8 M with 8 experts, of which 0.6 M process a token.
    """
    torch.manual_seed(recipe.seed)
    shape = {
        "vocab_size": len(tokenizer),
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "max_position_embeddings": 1024,
        "tie_word_embeddings": True,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "dtype": "float32",
    }
    if not recipe.experts:
        return Qwen3ForCausalLM(Qwen3Config(**shape))
    experts = {
        "num_experts": recipe.experts,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "norm_topk_prob": True,
        "router_aux_loss_coef": BALANCE_LOSS_WEIGHT,
    }
    return Qwen3MoeForCausalLM(Qwen3MoeConfig(**shape, **experts))


def demonstrations(recipe: Recipe, tokenizer: PreTrainedTokenizerFast, *, step: int) -> tuple[Tensor, Tensor]:
    """Return token ids and labels (-100 on prompt and padding), both (B, T), for one training step."""
    problem = Sums(seed=recipe.seed, operands=recipe.operands, low=recipe.low, high=recipe.high)
    rows, labels = [], []
    for index in range(step * recipe.batch_size, (step + 1) * recipe.batch_size):
        prompt = problem.sample(index, "train").text
        numbers = [int(number) for number in re.findall(r"\d+", prompt)]
        solution = imperfect_solution(numbers, Random(f"{recipe.seed}/{index}"), recipe.carelessness)
        prompt_ids, solution_ids = tokenizer.encode(prompt), tokenizer.encode(solution + tokenizer.eos_token)
        rows.append(torch.tensor(prompt_ids + solution_ids))
        labels.append(torch.tensor([-100] * len(prompt_ids) + solution_ids))
    return pad(rows, value=tokenizer.pad_token_id), pad(labels, value=-100)


def pad(rows: Sequence[Tensor], *, value: int) -> Tensor:
    """Return the rows as one (B, T) tensor, padded on the right."""
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=value)


def train(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, recipe: Recipe) -> None:
    """Train with supervision, using AdamW with a linear warm-up and a linear decay to a tenth."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=recipe.learning_rate, betas=(0.9, 0.98), weight_decay=0.01
    )
    for step in range(recipe.steps):
        progress = step / recipe.steps
        scale = min((step + 1) / recipe.warmup_steps, 1.0 - 0.9 * progress)
        optimizer.param_groups[0]["lr"] = recipe.learning_rate * scale
        ids, labels = demonstrations(recipe, tokenizer, step=step)
        options = {"output_router_logits": True} if recipe.experts else {}
        output = model(input_ids=ids, **options)
        loss = cross_entropy(output.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        if recipe.experts:
            loss = loss + BALANCE_LOSS_WEIGHT * output.aux_loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 0:
            logger.info("warm start step %d of %d: loss %.3f", step, recipe.steps, loss.item())


@torch.inference_mode()
def held_out_figures(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    recipe: Recipe,
    *,
    prompts: int,
    temperature: float,
) -> dict[str, float]:
    """Return the shares of completions that are right, boxed and ended, and their mean length.

    There is one completion of at most 64 tokens per held-out sum.
    """
    problem = Sums(seed=0, operands=recipe.operands, low=recipe.low, high=recipe.high)
    sum_prompts = [problem.sample(index, "eval") for index in range(prompts)]
    batch = tokenizer(
        [prompt.text for prompt in sum_prompts],
        return_tensors="pt",
        padding=True,
        return_token_type_ids=False,
    )
    torch.manual_seed(recipe.seed)
    sampling = (
        {"do_sample": True, "temperature": temperature, "top_k": 0}
        if temperature > 0
        else {"do_sample": False}
    )
    output = model.generate(**batch, max_new_tokens=64, **sampling)[:, batch["input_ids"].shape[1] :]
    texts = tokenizer.batch_decode(output)
    boxes = [re.findall(r"\\boxed\{([^{}]*)\}", text) for text in texts]
    is_right = [
        bool(box) and box[-1] == prompt.answer for box, prompt in zip(boxes, sum_prompts, strict=True)
    ]
    return {
        "accuracy": sum(is_right) / prompts,
        "boxed": sum(map(bool, boxes)) / prompts,
        "ended": sum("<eos>" in text for text in texts) / prompts,
        "mean_tokens": float((output != tokenizer.pad_token_id).sum()) / prompts,
    }


def write(directory: Path, recipe: Recipe) -> None:
    """Train the policy and write it with its tokenizer and card."""
    tokenizer = build_tokenizer()
    model = build_model(tokenizer, recipe)
    train(model, tokenizer, recipe)
    model.to(torch.bfloat16).save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    model.float()
    card = {
        "parameters": model.num_parameters(),
        "recipe": asdict(recipe),
        "held_out": {
            "prompts": 2000,
            "sampled_at_temperature_1": held_out_figures(
                model, tokenizer, recipe, prompts=2000, temperature=1.0
            ),
            "greedy": held_out_figures(model, tokenizer, recipe, prompts=2000, temperature=0.0),
        },
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__.split("+")[0],
            "transformers": transformers.__version__,
            "tokenizers": tokenizers.__version__,
        },
    }
    (directory / "card.json").write_text(json.dumps(card, indent=2) + "\n")
    logger.info("wrote %s: %s", directory, card["held_out"])


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--experts", type=int, default=0, help="experts of each layer; 0: a dense model")
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    asked = parser.parse_args()
    write(asked.directory, Recipe(experts=asked.experts, steps=asked.steps))
