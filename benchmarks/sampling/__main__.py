"""Tokens a second of the trainer's sampler, of `generate`, and of transformers' continuous batching.

    python -m benchmarks.sampling
    python -m benchmarks.sampling --device cuda   also without CUDA graphs; prints the table, keeps nothing

All draw from one policy in one process, in turns, at temperature 1. Continuous batching gets the cache and
the batch that were quickest among those that were tried by hand: its own defaults take most of the memory
and are ten times slower on a CPU. Writes results.md beside this file.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig

from backend.base.settings import Settings
from backend.config.merge import resolve
from benchmarks.common.service import machine
from benchmarks.step.__main__ import gpu_policy
from worker.policy.model import Policy, load_policy
from worker.rollout.lean_decoder import LeanDecoder
from worker.rollout.sampler import Sampler

HERE = Path(__file__).parent
PROMPTS, GROUP = 16, 8
TINY, LARGER, HALF_B = "tiny", "larger", "half-billion"

LAUNCHED, CONTINUOUS = "without CUDA graphs", "continuous batching"

Draw = Callable[[int], int]
"""Draws completions of at most so many tokens; the number of tokens drawn."""


class Case(NamedTuple):
    """A policy, and how continuous batching is set up for it."""

    policy: str
    tokens: int
    blocks: int
    batch_tokens: int


CASES = (Case(TINY, 64, 256, 128), Case(LARGER, 96, 128, 128))
GPU_CASES = (Case(TINY, 64, 256, 1024), Case(LARGER, 256, 256, 1024), Case(HALF_B, 256, 256, 1024))


def main() -> None:
    """Time every case; print and keep the table."""
    parser = argparse.ArgumentParser(description="the sampler beside continuous batching")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--skip-continuous", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as directory:
        settings = Settings(models_dir=Path(directory))
        _write_larger(Path(directory) / LARGER)
        if asked.device == "cuda":
            gpu_policy(Path(directory) / HALF_B)
        cases = CASES if asked.device == "cpu" else GPU_CASES
        rows = [_row(case, settings, asked) for case in cases]
    text = _table(rows, asked, load)
    print(text)
    if asked.device == "cuda":
        return
    (HERE / "results.md").write_text(text + "\n", encoding="utf-8")


def _write_larger(directory: Path) -> None:
    """A policy of the built-in one's kind with 76 million parameters, random ones."""
    policy = _load(TINY, Settings())
    config = policy.model.config
    sizes = {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12, "head_dim": 64}
    heads = {"num_attention_heads": 12, "num_key_value_heads": 4, "layer_types": ["full_attention"] * 12}
    for name, value in (sizes | heads).items():
        setattr(config, name, value)
    torch.manual_seed(0)
    model = type(policy.model)(config)
    model.generation_config = policy.model.generation_config
    model.save_pretrained(directory)
    policy.tokenizer.save_pretrained(directory)


def _load(name: str, settings: Settings, device: str = "cpu") -> Policy:
    dtype = "bfloat16" if device == "cuda" else "float32"
    config = resolve({"steps": 1}).policy.model_copy(update={"name": name, "dtype": dtype})
    return load_policy(config, settings, device=device)


def _row(case: Case, settings: Settings, asked: argparse.Namespace) -> list[str]:
    rounds = asked.rounds
    policy = _load(case.policy, settings, asked.device)
    ways = _ways(policy, case)
    if asked.device == "cpu":
        del ways[LAUNCHED]
    if asked.skip_continuous:
        del ways[CONTINUOUS]
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):  # the first one warms up
        for name, draw in ways.items():
            began = time.perf_counter()
            drawn = draw(case.tokens)
            rate = drawn / (time.perf_counter() - began)
            print(f"{case.policy}, {name}: {drawn} tokens, {rate:.0f} a second", flush=True)
            if number:
                rates[name].append(rate)
    size = sum(parameter.numel() for parameter in policy.model.parameters()) / 1e6
    own = rates["sampler"]
    cells = [f"{case.policy} ({size:.1f} M)"]
    for name, found in rates.items():
        ratios = [theirs / ours for theirs, ours in zip(found, own, strict=True)]
        share = "" if name == "sampler" else f" ({median(ratios):.2f})"
        cells.append(f"{median(found):,.0f}{share}")
    return cells


def _ways(policy: Policy, case: Case) -> dict[str, Draw]:
    tokenizer, model = policy.tokenizer, policy.model
    device = model.device
    prompts: list[list[int]] = [
        tokenizer(f"{3 * n + 1} + {7 * n + 2} =")["input_ids"] for n in range(PROMPTS)
    ]
    repeated = [ids for ids in prompts for _ in range(GROUP)]
    ends = model.generation_config.eos_token_id
    ends = [tokenizer.eos_token_id if ends is None else ends] if not isinstance(ends, list) else ends

    def settings_of(tokens: int) -> GenerationConfig:
        free: dict[str, Any] = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
        return GenerationConfig(
            max_new_tokens=tokens, eos_token_id=ends, pad_token_id=tokenizer.pad_token_id, **free
        )

    def sampler(tokens: int) -> int:
        sampling = resolve({"steps": 1}).sampling.model_copy(update={"max_new_tokens": tokens})
        groups = Sampler(policy).generate(prompts, GROUP, sampling, torch.Generator().manual_seed(0))
        return sum(len(completion.ids) for group in groups for completion in group)

    @torch.inference_mode()
    def generate(tokens: int) -> int:
        batch = tokenizer.pad({"input_ids": repeated}, return_tensors="pt", padding_side="left")
        ids, mask = batch["input_ids"].to(device), batch["attention_mask"].to(device)
        drawn = model.generate(input_ids=ids, attention_mask=mask, generation_config=settings_of(tokens))
        return sum(_length(row, ends) for row in drawn[:, ids.shape[1] :].tolist())

    def continuous(tokens: int) -> int:
        found = model.generate_batch(
            repeated,
            generation_config=settings_of(tokens),
            continuous_batching_config=ContinuousBatchingConfig(
                return_logprobs=True, num_blocks=case.blocks, max_batch_tokens=case.batch_tokens
            ),
            warmup=False,
        )
        return sum(len(one.generated_tokens) for one in found.values())

    def launched(tokens: int) -> int:
        with patch("worker.rollout.sampler.decoder_for", LeanDecoder):
            return sampler(tokens)

    return {"sampler": sampler, LAUNCHED: launched, "`generate`": generate, CONTINUOUS: continuous}


def _length(ids: Sequence[int], ends: Sequence[int]) -> int:
    """Tokens up to the first that ends a completion, which counts."""
    return next((place + 1 for place, token in enumerate(ids) if token in ends), len(ids))


def _table(rows: Sequence[Sequence[str]], asked: argparse.Namespace, load: float) -> str:
    versions = ", ".join(f"{name} {value}" for name, value in machine().items())
    about = f"{PROMPTS} x {GROUP} completions at temperature 1, one thread, {versions}"
    is_gpu = asked.device == "cuda"
    ways = ["`generate`", *([] if asked.skip_continuous else [CONTINUOUS])]
    head = ("policy", "the trainer's sampler", *([LAUNCHED] if is_gpu else []), *ways)
    if is_gpu:
        about += f", {torch.cuda.get_device_name()}, bfloat16"
    lines = [
        f"`make bench-sampling`: tokens a second, median of {asked.rounds} rounds in turns; in brackets the",
        f"median of the ratios to the sampler. {about}. The load average was {load:.0f} when it began.",
        "",
        "| " + " | ".join(head) + " |",
        "| --- " * len(head) + "|",
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
