"""Memory of one learner pass and of a run's weights and optimizer, before and after each measure.

    python -m benchmarks.memory              # both tables: writes results.md and docs/one-gpu.md
    python -m benchmarks.memory --device cuda  # the peaks that CUDA's allocator reports, printed alone
    python -m benchmarks.memory estimates    # estimates against measured peaks, of all or some

On a CPU, with a reduced Qwen3 that has the proportions of a real one, in bfloat16: 4 layers of 256, 2,048
tokens of vocabulary, 8 completions of 64 tokens. What autograd keeps is counted by its hooks, so the ratios
do not depend on an allocator; a GPU's kernels keep less of attention.
"""

import sys
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from backend.config.adapters import LoraAdapter
from backend.config.sections import OptimizerConfig
from benchmarks.memory.live import LiveBytes, plain_parts
from benchmarks.memory.matrix import further_rows
from benchmarks.memory.matrix import rows as matrix_rows
from benchmarks.memory.matrix import table as matrix_table
from benchmarks.memory.measure import saved_bytes
from tests.models.architectures import ARCHITECTURES
from worker.policy.adapter import add_adapter
from worker.policy.copies import own_copy
from worker.policy.logprobs import token_logprobs
from worker.policy.optimizer import PolicyOptimizer
from worker.policy.packing import enable_packing
from worker.policy.quantized import quantise_base
from worker.policy.recompute import enable_recompute
from worker.policy.token_batch import microbatches, token_batch

RESULTS = Path(__file__).parent / "results.md"
PAGE = Path(__file__).parents[2] / "docs" / "one-gpu.md"
BEGIN, END = "<!-- estimates against measured peaks -->", "<!-- end of estimates -->"
PROMPT, COMPLETION, ROWS, VOCABULARY = 16, 48, 8, 2048


class Measured(NamedTuple):
    """Bytes by kind after one step."""

    weights: int
    optimizer: int
    """Gradients, master weights and moments on the device."""
    activations: int
    """The largest of the micro-batches."""


class Measure(NamedTuple):
    """A measure with what it changes."""

    title: str
    adapter: LoraAdapter | None = None
    quantization: Any = "none"
    recompute: bool = False
    tokens: int = 0
    moments: Any = "float32"
    offload: bool = False
    paged: bool = False
    packed: bool = False
    reference: Literal["", "beside", "offloaded"] = ""
    """Whether a frozen copy stands beside the policy, or waits in the host's memory."""

    @property
    def needs_gpu(self) -> bool:
        """Whether it moves what a CPU keeps in the same memory, or packs for kernels that a CPU lacks."""
        return self.offload or self.paged or self.packed or self.reference == "offloaded"


LORA = LoraAdapter(rank=16)
MEASURES = (
    Measure("full fine-tuning"),
    Measure("`resources.activation_checkpointing`", recompute=True),
    Measure(
        "`resources.microbatch_tokens`: a quarter of the batch", tokens=ROWS * (PROMPT + COMPLETION) // 4
    ),
    Measure("`optimizer.moments` int8", moments="int8"),
    Measure("`optimizer.moments` int4", moments="int4"),
    Measure("`resources.offload_optimizer`", offload=True),
    Measure("LoRA, rank 16", LORA),
    Measure("LoRA + `policy.quantization` int8", LORA, "int8"),
    Measure("LoRA + `policy.quantization` nf4", LORA, "nf4"),
    Measure("LoRA + `policy.quantization` nf4_double", LORA, "nf4_double"),
    Measure("LoRA + nf4 + activation checkpointing", LORA, "nf4", recompute=True),
    Measure("`optimizer.paged`", paged=True),
    Measure("`resources.packing`", packed=True),
    Measure("a reference beside the policy", reference="beside"),
    Measure("`resources.offload_reference`", reference="offloaded"),
)


def model_of(measure: Measure) -> Qwen3ForCausalLM:
    """The reduced model with what a measure changes."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        tie_word_embeddings=True,
    )
    model = Qwen3ForCausalLM(config).to(torch.bfloat16).eval()
    quantise_base(model, measure.quantization, "cpu")
    if measure.adapter is not None:
        add_adapter(model, measure.adapter, base="reduced")
    if measure.recompute:
        enable_recompute(model)
    return model


def measured(measure: Measure) -> Measured:
    """The bytes of one step under a measure."""
    model = model_of(measure)
    optimizer = PolicyOptimizer(
        model, OptimizerConfig(moments=measure.moments), steps=10, offload=measure.offload
    )
    ids = torch.randint(3, VOCABULARY, (ROWS, PROMPT + COMPLETION)).tolist()
    batch = token_batch([row[:PROMPT] for row in ids], [row[PROMPT:] for row in ids], pad_id=0)
    largest = 0
    for rows in microbatches(batch, tokens=measure.tokens):
        scored, kept = saved_bytes(model, _scored(model, batch.rows(rows)))
        scored.sum().backward()
        largest = max(largest, kept)
        gradients = sum(bytes_of(weight.grad) for weight in model.parameters() if weight.grad is not None)
        optimizer.take_gradients()
    wide = (
        0
        if measure.offload
        else sum(
            bytes_of(master) + (0 if master.grad is None else bytes_of(master.grad))
            for name, master in optimizer.masters.items()
            if master is not optimizer.weights[name]
        )
    )
    optimizer.step(1)
    moments = (
        0
        if measure.offload
        else sum(
            tensor.nbytes for name, tensor in optimizer.tensors().items() if not name.startswith("master/")
        )
    )
    return Measured(sum(map(bytes_of, model.parameters())), gradients + wide + moments, largest)


def peak_of(measure: Measure, device: str) -> int:
    """Bytes at the peak of the second step, when the optimizer has its moments: of all live tensors on a CPU,
    of CUDA's allocator on a GPU.
    """
    model = model_of(measure).to(device)
    if measure.packed:
        enable_packing(model, "on")
    config = OptimizerConfig(moments=measure.moments, paged=measure.paged)
    optimizer = PolicyOptimizer(model, config, steps=10, offload=measure.offload)
    reference = own_copy(model) if measure.reference == "beside" else None
    batch = _batch(device)

    def step() -> None:
        for rows in microbatches(batch, tokens=measure.tokens, is_packed=measure.packed):
            token_logprobs(model, batch.rows(rows), temperature=1.0).logprobs.sum().backward()
            optimizer.take_gradients()
        optimizer.step(1)

    step()
    if device != "cpu":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        step()
        return torch.cuda.max_memory_allocated()
    there = [*model.parameters(), *optimizer.masters.values(), *optimizer.tensors().values()]
    there += [] if reference is None else list(reference.parameters())
    held = {part.untyped_storage().data_ptr(): part for tensor in there for part in plain_parts(tensor)}
    with LiveBytes() as live:
        live.ignore(held.values())
        step()
    return live.peak + sum(part.untyped_storage().nbytes() for part in held.values())


def _batch(device: str) -> Any:
    ids = torch.randint(
        3, VOCABULARY, (ROWS, PROMPT + COMPLETION), generator=torch.Generator().manual_seed(0)
    ).tolist()
    return token_batch([row[:PROMPT] for row in ids], [row[PROMPT:] for row in ids], pad_id=0, device=device)


def _scored(model: Qwen3ForCausalLM, part: Any) -> Callable[[], torch.Tensor]:
    return lambda: token_logprobs(model, part, temperature=1.0).logprobs


def bytes_of(weight: Any) -> int:
    """Bytes in memory; torchao's tensors answer for the ones that they stand for."""
    return int(weight.qdata.nbytes + weight.scale.nbytes if hasattr(weight, "qdata") else weight.nbytes)


def table(rows: list[tuple[Measure, Measured]], peaks: dict[Measure, int]) -> str:
    """The bytes as shares of full fine-tuning's, by kind and at the peak of a step."""
    whole, first = rows[0][1], peaks[rows[0][0]]
    lines = [
        "| measure | weights | gradients, masters, moments | activations | peak |",
        "| --- | --- | --- | --- | --- |",
    ]
    for measure, found in rows:
        shares = [part / total for part, total in zip(found, whole, strict=True)]
        cells = [f"{share:.2f}" for share in shares]
        peak = f"{peaks[measure] / first:.2f}" if measure in peaks else "GPU only"
        lines.append(f"| {measure.title} | {' | '.join(cells)} | {peak} |")
    lines += [
        f"| {measure.title} | | | | {peaks[measure] / first:.2f} |"
        for measure in peaks
        if measure not in dict(rows)
    ]
    sizes = ", ".join(f"{part / 2**20:.1f} MiB of {name}" for name, part in whole._asdict().items())
    return "\n".join(lines) + f"\n\n1.00 is {sizes}, and {first / 2**20:.1f} MiB at the peak.\n"


def peaks_on(device: str) -> dict[Measure, int]:
    """The peak of each measure that the device can show."""
    chosen = [measure for measure in MEASURES if device != "cpu" or not measure.needs_gpu]
    return {measure: peak_of(measure, device) for measure in chosen}


def estimates(architectures: Sequence[str]) -> None:
    """Compare estimates with measured peaks and write the table into docs/one-gpu.md, if it is whole."""
    found, is_whole = [], tuple(architectures) == tuple(ARCHITECTURES)
    for row in chain(matrix_rows(architectures), further_rows() if is_whole else ()):
        print(f"{row.architecture} {row.dtype} {row.adapter} {row.recomputed}: {row.ratio:.3f}", flush=True)
        found.append(row)
    if is_whole:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{matrix_table(found)}\n{END}{rest.partition(END)[2]}")


def main() -> None:
    """Measure what was asked for, print and keep the table."""
    torch.set_num_threads(2)
    if sys.argv[1:2] == ["estimates"]:
        estimates(sys.argv[2:] or tuple(ARCHITECTURES))
        return
    if sys.argv[1:] == ["--device", "cuda"]:
        peaks = peaks_on("cuda")
        for measure, peak in peaks.items():
            print(f"{measure.title}: {peak / peaks[MEASURES[0]]:.2f}")
        return
    parts = [measure for measure in MEASURES if not (measure.paged or measure.packed or measure.reference)]
    text = table([(measure, measured(measure)) for measure in parts], peaks_on("cpu"))
    print(text)
    RESULTS.write_text(text)
    estimates(tuple(ARCHITECTURES))


if __name__ == "__main__":
    main()
