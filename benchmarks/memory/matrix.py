"""Estimates of memory against measured peaks, for every architecture that is tested.

Measured is what one learning step holds in live tensors at its peak, on a CPU: weights, optimizer, gradients
and everything that forward and backward pass hold. The models are the reduced ones of
tests/models/architectures.py, the step 8 completions of 64 tokens in two micro-batches.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from backend.config.adapters import LoraAdapter
from backend.config.merge import resolve
from backend.config.run import RunConfig
from backend.policies.memory import phases_of
from backend.policies.model_shape import ModelShape
from backend.policies.weight_files import Weight
from benchmarks.memory.live import LiveBytes
from tests.models.architectures import ARCHITECTURES, build, published
from worker.policy.adapter import add_adapter
from worker.policy.logprobs import token_logprobs
from worker.policy.microbatches import Microbatches
from worker.policy.optimizer import PolicyOptimizer
from worker.policy.packing import enable_packing, is_packed
from worker.policy.recompute import enable_recompute
from worker.policy.text_part import freeze_beside_text
from worker.policy.token_batch import token_batch

PROMPTS, GROUP, PROMPT, COMPLETION, VOCABULARY, RANK = 2, 4, 16, 48, 128, 4


class Row(NamedTuple):
    """A row of the matrix."""

    architecture: str
    dtype: str
    adapter: str
    recomputed: bool
    measured: int
    estimated: float

    @property
    def ratio(self) -> float:
        """Estimate over measured peak."""
        return self.estimated / self.measured


def rows(architectures: Any = tuple(ARCHITECTURES)) -> Iterator[Row]:
    """All rows of some architectures."""
    for name in architectures:
        for dtype in ("float32", "bfloat16"):
            for adapter in ("none", "lora"):
                for recomputed in (False, True):
                    config = config_of(name, dtype, adapter, recomputed=recomputed)
                    yield Row(name, dtype, adapter, recomputed, *measured_and_estimated(name, config))


def config_of(name: str, dtype: str, adapter: str, *, recomputed: bool, packing: str = "auto") -> RunConfig:
    """The run whose learning step is measured."""
    lora = {
        "type": "lora",
        "rank": RANK,
        "targets": "all_linear,experts" if adapter == "experts" else "all_linear",
    }
    return resolve(
        {
            "policy": {
                "name": "tiny",
                "dtype": dtype,
                "adapter": {"type": "none"} if adapter == "none" else lora,
            },
            "sampling": {"prompts_per_step": PROMPTS, "group_size": GROUP, "max_new_tokens": COMPLETION},
            "objective": {"kl": {"type": "none"}},
            "resources": {
                "activation_checkpointing": recomputed,
                "microbatch_completions": GROUP,
                "packing": packing,
            },
        },
        None,
        0,
    )


def measured_and_estimated(name: str, config: RunConfig, device: str = "cpu") -> tuple[int, float]:
    """Bytes of a learning step at its peak, and the estimate without the process."""
    model = build(name, vocabulary=VOCABULARY, dtype=getattr(torch, config.policy.dtype)).to(device)
    freeze_beside_text(model)
    shape = shape_of(published(name, vocabulary=VOCABULARY))
    adapter = config.policy.adapter if isinstance(config.policy.adapter, LoraAdapter) else None
    on_cpu = device == "cpu"
    memory = phases_of(config, shape, adapter, on_cpu=on_cpu, prompt_tokens=PROMPT)[1]
    if adapter is not None:
        add_adapter(model, adapter, base=name)
    if config.resources.activation_checkpointing:
        enable_recompute(model)
    enable_packing(model, config.resources.packing)
    estimated = memory.peak - memory.parts["context"]
    if on_cpu:
        return learning_peak(model, config), estimated
    torch.cuda.reset_peak_memory_stats()
    learning_peak(model, config)
    return torch.cuda.max_memory_allocated(), estimated


def shape_of(model: Any) -> ModelShape:
    """The shape that the files of a model would have."""
    weights = [Weight(key, tuple(weight.shape)) for key, weight in model.state_dict().items()]
    return ModelShape.of(model.config.to_dict(), weights)


def learning_peak(model: Any, config: RunConfig) -> int:
    """Bytes in live tensors at the peak of the second learning step, when the optimizer has its moments."""
    optimizer = PolicyOptimizer(model, config.optimizer, steps=10)
    ids = torch.randint(
        3, 120, (PROMPTS * GROUP, PROMPT + COMPLETION), generator=torch.Generator().manual_seed(0)
    )
    rows = ids.tolist()
    prompts = [rows[number // GROUP * GROUP][:PROMPT] for number in range(len(rows))]
    batch = token_batch(prompts, [row[PROMPT:] for row in rows], pad_id=0, device=model.device)
    parts = Microbatches(config.resources, is_packed=is_packed(model)).parts(batch)

    def step() -> None:
        for part in parts:
            token_logprobs(model, batch.rows(part), temperature=1.0).logprobs.sum().backward()
            optimizer.take_gradients()
        optimizer.step(1)

    step()
    there = {id(weight): weight for weight in [*model.parameters(), *optimizer.masters.values()]}
    moments = [value for state in optimizer.adam.state.values() for value in state.values()]
    held = [*there.values(), *moments]
    with LiveBytes() as live:
        live.ignore(held)
        step()
    return live.peak + sum(tensor.nbytes for tensor in held)


def table(found: list[Row]) -> str:
    """Estimate over measured peak, one line for each architecture and precision."""
    kinds = [(adapter, recomputed) for adapter in ("none", "lora") for recomputed in (False, True)]
    lines = [
        "| architecture | precision | full | full, recomputed | LoRA | LoRA, recomputed |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    ratios = {(row.architecture, row.dtype, row.adapter, row.recomputed): row.ratio for row in found}
    for name, dtype in dict.fromkeys((row.architecture, row.dtype) for row in found):
        cells = " | ".join(f"{ratios[name, dtype, *kind]:.2f}" for kind in kinds)
        lines.append(f"| {name} | {dtype} | {cells} |")
    return "\n".join(lines)
