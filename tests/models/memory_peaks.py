"""Measured and estimated memory peaks for every tested architecture.

The measurement is the peak of live tensors in one learning step on a CPU: weights, optimizer, gradients
and everything that the forward and backward passes save. The models are the reduced ones of
tests/models/architectures.py, and the step has 8 completions of 64 tokens in two micro-batches. For
sampling, it is the memory of 16 completions of 128 tokens in addition to the weights."""

from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from backend.catalog.policies.memory import estimate_phases
from backend.catalog.policies.model_shape import ModelShape
from backend.catalog.policies.weight_files import Weight
from backend.config.adapters import LoraAdapter
from backend.config.merge import resolve
from backend.config.run import RunConfig
from tests.models.architectures import build, published
from tests.models.live_bytes import LiveBytes, plain_parts
from tests.models.sampling_peak import sampling_peak
from worker.policy.adapter import add_adapter
from worker.policy.logprobs import token_logprobs
from worker.policy.microbatches import Microbatches
from worker.policy.optimizer import PolicyOptimizer
from worker.policy.packing import enable_packing, is_packed
from worker.policy.quantized import quantise_base
from worker.policy.recompute import enable_recompute
from worker.policy.text_part import freeze_beside_text
from worker.policy.token_batch import token_batch

PROMPTS, GROUP, PROMPT, COMPLETION, VOCABULARY, RANK = 2, 4, 16, 48, 128, 4
SAMPLING_SIZES = {"group_size": 8, "max_new_tokens": 112}
"""Sizes for sampling, with enough tokens that the cache matters."""

QWEN_7M: dict[str, Any] = {
    "vocab_size": 2048,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "tie_word_embeddings": True,
}


def quantised_peak(run: RunConfig) -> tuple[int, float]:
    """Return measured and estimated bytes of a learning step of a Qwen3 with a quantised base."""
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**QWEN_7M)).to(getattr(torch, run.policy.dtype)).eval()
    shape = read_shape(model)
    quantise_base(model, run.policy.quantization, "cpu")
    return compare_learning_memory(model, shape, run, base="qwen3")


def make_config(
    name: str,
    dtype: str,
    adapter: str,
    *,
    recomputed: bool,
    packing: str = "auto",
    quantization: str = "none",
) -> RunConfig:
    """Return the run whose learning step is measured."""
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
                "quantization": quantization,
            },
            "sampling": {"prompts_per_step": PROMPTS, "group_size": GROUP, "max_new_tokens": COMPLETION},
            "objective": {"kl": {"type": "none"}},
            "evaluation": {"every": 0},
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
    """Return the peak bytes of a learning step, and the estimate without the process."""
    model = build(name, vocabulary=VOCABULARY, dtype=getattr(torch, config.policy.dtype)).to(device)
    freeze_beside_text(model)
    return compare_learning_memory(
        model, read_shape(published(name, vocabulary=VOCABULARY)), config, base=name, device=device
    )


def compare_learning_memory(
    model: Any, shape: ModelShape, config: RunConfig, *, base: str, device: str = "cpu"
) -> tuple[int, float]:
    """Return measured and estimated bytes for a model and the shape that its files have."""
    adapter = config.policy.adapter if isinstance(config.policy.adapter, LoraAdapter) else None
    on_cpu = device == "cpu"
    memory = estimate_phases(config, shape, adapter, on_cpu=on_cpu, prompt_tokens=PROMPT)[1]
    if adapter is not None:
        add_adapter(model, adapter, base=base)
    if config.resources.activation_checkpointing:
        enable_recompute(model)
    enable_packing(model, config.resources.packing)
    estimated_bytes = memory.peak - memory.parts["context"]
    return learning_peak(model, config), estimated_bytes


def sampled_and_estimated(name: str, dtype: str) -> tuple[int, float]:
    """Return the peak bytes of sampling in addition to the weights, and the estimate."""
    model = build(name, vocabulary=VOCABULARY, dtype=getattr(torch, dtype))
    shape = read_shape(published(name, vocabulary=VOCABULARY))
    return compare_sampling_memory(model, shape, make_config(name, dtype, "none", recomputed=False))


def compare_sampling_memory(model: Any, shape: ModelShape, config: RunConfig) -> tuple[int, float]:
    """Return measured and estimated bytes of sampling for a model and the shape that its files have."""
    sampling_run = config.with_(sampling=config.sampling.with_(**SAMPLING_SIZES))
    memory = estimate_phases(sampling_run, shape, None, on_cpu=True, prompt_tokens=PROMPT)[0]
    resident_purposes = ("context", "weights", "optimizer")
    estimated_bytes = sum(size for purpose, size in memory.parts.items() if purpose not in resident_purposes)
    return sampling_peak(model, sampling_run, prompt_tokens=PROMPT), estimated_bytes


def read_shape(model: Any) -> ModelShape:
    """Return the shape that the files of a model would have."""
    weights = [Weight(key, tuple(weight.shape)) for key, weight in model.state_dict().items()]
    return ModelShape.from_config(model.config.to_dict(), weights)


def learning_peak(model: Any, config: RunConfig) -> int:
    """Return the peak bytes of a learning step once the optimizer has its moments.

    They are bytes of live tensors on a CPU, and of CUDA's allocator on a GPU without the workspaces of its
    libraries, which belong to the process."""
    optimizer = PolicyOptimizer(model, config.optimizer, steps=10)
    ids = torch.randint(
        3, 120, (PROMPTS * GROUP, PROMPT + COMPLETION), generator=torch.Generator().manual_seed(0)
    )
    rows = ids.tolist()
    prompts = [rows[number // GROUP * GROUP][:PROMPT] for number in range(len(rows))]
    batch = token_batch(prompts, [row[PROMPT:] for row in rows], pad_id=0, device=model.device)
    micro_batches = Microbatches(config.resources, is_packed=is_packed(model)).split_rows(batch)

    def step() -> None:
        for rows in micro_batches:
            token_logprobs(model, batch.rows(rows), temperature=1.0).logprobs.sum().backward()
            optimizer.take_gradients()
        optimizer.step(1)

    step()
    resident_tensors = [*model.parameters(), *optimizer.masters.values()]
    resident_tensors += [value for state in optimizer.adam.state.values() for value in state.values()]
    resident_storages = {
        plain_tensor.untyped_storage().data_ptr(): plain_tensor
        for tensor in resident_tensors
        for plain_tensor in plain_parts(tensor)
    }
    size = sum(plain_tensor.untyped_storage().nbytes() for plain_tensor in resident_storages.values())
    if model.device.type == "cuda":
        step()  # the last kernels are compiled
        bytes_before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        return torch.cuda.max_memory_allocated() - bytes_before + size
    with LiveBytes() as live_bytes:
        live_bytes.ignore(resident_storages.values())
        step()
    return int(live_bytes.peak + size)
