"""Estimate the memory of a run by part, from its config and the shape of its model, without torch.

A step has two phases. During sampling there are no gradients, and during learning there is no cache of keys
and values. The peak is that of the larger phase. Completions are assumed to have their maximum length.

If a run has several devices, the estimate is for each GPU, or for all processes that share a slot of a CPU.
Each has the complete policy in addition to its part of FSDP's copy (worker/policy/shards.py).
"""

import math
from typing import Literal, NamedTuple

from backend.catalog.policies.activations import KeptBytes, expert_sizes, kept_bytes
from backend.catalog.policies.adapters import adapter_filter, adapts_experts
from backend.catalog.policies.architectures import packing_error
from backend.catalog.policies.forward_pass import ForwardPass
from backend.catalog.policies.model_shape import ModelShape, is_expert, is_linear, is_output
from backend.catalog.policies.sampling import DecodingBatch, copied_values, sampling_parts
from backend.config.adapters import LoraAdapter
from backend.config.run import RunConfig

ASSUMED_PROMPT_TOKENS = 256
"""Assumed length of a prompt with its chat template, in tokens, if the context has room for it."""

CONTEXT_BYTES = 600_000_000
"""Memory of the CUDA context in a torch process. This is a round number that was not measured."""

PROCESS_BYTES = 550_000_000
"""Memory of a trainer on a CPU before it loads a policy, half of SLOT_BYTES for a trainer and its spare."""

MAX_CHUNK_LOGITS = 2**27
"""Maximum number of logits that the learner holds at a time. A test
compares it with worker/policy/logprobs.py.
"""

LOGIT_BYTES = 16
"""Bytes per logit in float32: the logit, its log-probability, and two terms of the entropy or gradient."""

MIN_QUANTIZED_VALUES = 4096
"""Size of a weight, in values, below which torchao keeps its moments in float32."""

MIN_PAGED_VALUES = 100_000
"""Size of a weight, in values, from which bitsandbytes pages its moments."""

MOMENT_BYTES = {"float32": 8.0, "int8": 2 + 8 / 256, "int4": 1 + 8 / 128}
"""Bytes per value of both moments, including the scales of their blocks."""

WEIGHT_BYTES = {"none": 0.0, "int8": 1.0, "nf4": 0.5 + 4 / 64, "nf4_double": 0.5 + (1 + 4 / 256) / 64}
"""Bytes per quantised value, including the scales of its block."""

BYTES_BY_DTYPE = {"float32": 4, "bfloat16": 2}

Phase = Literal["sample", "learn"]
Parts = dict[str, float]
"""Bytes of each part at the moment of the peak, by name."""


class Memory(NamedTuple):
    """The memory of a run at its peak."""

    phase: Phase
    parts: Parts
    host_bytes: float
    """Bytes in the memory of the host."""

    @property
    def peak(self) -> float:
        """Total bytes on the device."""
        return sum(self.parts.values())


def estimate_memory(
    config: RunConfig,
    shape: ModelShape,
    adapter: LoraAdapter | None,
    *,
    on_cpu: bool,
    prompt_tokens: int = 0,
    engine_bytes: float = 0.0,
) -> Memory:
    """Return the memory of a run at its peak.

    `adapter` is the adapter of the config, which is read from its directory if it is a continued one.
    `engine_bytes` is the memory of a colocated vLLM server while it samples.
    """
    phases = estimate_phases(
        config, shape, adapter, on_cpu=on_cpu, prompt_tokens=prompt_tokens, engine_bytes=engine_bytes
    )
    return max(phases, key=lambda memory: memory.peak)


def estimate_phases(
    config: RunConfig,
    shape: ModelShape,
    adapter: LoraAdapter | None,
    *,
    on_cpu: bool,
    prompt_tokens: int = 0,
    engine_bytes: float = 0.0,
) -> list[Memory]:
    """Return the memory of each phase of a step at the peak of that phase: sampling, then learning.

    A colocated vLLM server sleeps during evaluations, which the trainer samples, so the larger one counts.
    """
    parts_of_run = _RunMemory(config, shape, adapter, on_cpu=on_cpu, prompt_tokens=prompt_tokens)
    at_end = {
        "gradients": parts_of_run.gradients_at_end + parts_of_run.embeddings_at_end,
        "gathered": parts_of_run.gathered * parts_of_run.width,
    }
    moments = [parts_of_run.backward_begin(), at_end, *parts_of_run.critic_phase()]
    if config.resources.offload_reference and not on_cpu:
        moments.append(
            {"reference": parts_of_run.reference, "logits": parts_of_run.logits_bytes(parts_of_run.run)}
        )
    learning = max(moments, key=lambda parts: sum(parts.values()))
    sampling = parts_of_run.sampling()
    if engine_bytes > sum(sampling.values()):
        sampling = {"engine": engine_bytes}
    phases: tuple[tuple[Phase, Parts], ...] = (("sample", sampling), ("learn", learning))
    processes = parts_of_run.devices if on_cpu else 1  # the processes share one slot
    return [
        Memory(phase, _scale_parts({**parts_of_run.static(), **parts}, processes), parts_of_run.host())
        for phase, parts in phases
    ]


def _scale_parts(parts: Parts, times: int) -> Parts:
    return {name: times * size for name, size in parts.items() if size}


class _RunMemory:
    """Computes the parts of the memory of one run."""

    def __init__(
        self,
        config: RunConfig,
        shape: ModelShape,
        adapter: LoraAdapter | None,
        *,
        on_cpu: bool,
        prompt_tokens: int,
    ) -> None:
        self.config, self.shape, self.adapter, self.on_cpu = config, shape, adapter, on_cpu
        self.width = BYTES_BY_DTYPE[config.policy.dtype]
        self.is_adapted = adapter_filter(adapter, shape.weights)
        self.trained_width = BYTES_BY_DTYPE[adapter.dtype] if adapter else self.width
        self.trained = self._trained_values()
        self.values = sum(self.trained)
        max_prompt = max(1, (shape.size("max_position_embeddings") or 10**9) - config.sampling.max_new_tokens)
        self.prompt = prompt_tokens or min(ASSUMED_PROMPT_TOKENS, max_prompt)
        self.columns = self.prompt + config.sampling.max_new_tokens
        self.devices, self.ranks = config.resources.devices, config.resources.ranks
        self.run = self._forward_pass(self.width)

    def _trained_values(self) -> list[int]:
        """Return the number of values of each trained weight."""
        if self.adapter is None:
            return [weight.values for weight in self.shape.weights]
        rank = self.adapter.rank
        adapted_weights = [weight for weight in self.shape.weights if self.is_adapted(weight)]
        sizes = [rank * size for weight in adapted_weights for size in weight.shape]
        if adapts_experts(self.adapter):
            layers = sum(any(map(is_expert, weights)) for weights in self.shape.layers.values())
            sizes += layers * [rank * size for size in expert_sizes(self.shape)]
        return sizes

    def _forward_pass(self, width: int) -> ForwardPass:
        sampling, resources = self.config.sampling, self.config.resources
        groups = math.ceil(
            sampling.prompts_per_step / min(self.config.updates.minibatches, sampling.prompts_per_step)
        )
        self.minibatch = rows = math.ceil(groups * sampling.group_size / self.ranks)
        rows = min(rows, resources.microbatch_completions or rows)
        rows = min(
            rows, max(1, resources.microbatch_tokens // self.columns) if resources.microbatch_tokens else rows
        )
        return ForwardPass(
            rows,
            self.columns - 1,
            width,
            adapter_bytes=self.trained_width if self.adapter else 0,
            rank=self.adapter.rank if self.adapter else 0,
            is_adapted=self.is_adapted,
            adapts_experts=adapts_experts(self.adapter),
            on_cpu=self.on_cpu,
            rows_per_prompt=min(rows, sampling.group_size),
            prompt_tokens=self.prompt,
            is_packed=self._is_packed(),
            keeps_expanded=self.config.policy.quantization == "int8",
            by_rows=self.ranks > 1,
        )

    def _is_packed(self) -> bool:
        packing = self.config.resources.packing
        if (
            packing == "off"
            or self.ranks > 1
            or self.config.updates.rule != "adam"
            or packing_error(dict(self.shape.config))
        ):
            return False
        return packing == "on" or not self.on_cpu

    def static(self) -> Parts:
        """Return the parts that exist in both phases."""
        sampling, offload = self.config.sampling, self.config.resources.offload_optimizer
        copies = (
            sampling.staleness
            + 2 * bool(sampling.ahead)
            + (self.config.updates.resample_each_epoch and self.config.updates.epochs > 1)
        )
        parts_by_name = {
            "context": float(PROCESS_BYTES if self.on_cpu else CONTEXT_BYTES),
            "weights": self.weights(),
            "adapter": float(self.values * self.trained_width if self.adapter else 0),
            "shards": self.shards(),
            "optimizer": 0.0 if offload and not self.on_cpu else self.optimizer(),
            "copies": float(copies * self.values * self.trained_width),
            "critic": self.critic(),
        }
        if not self.config.resources.offload_reference or self.on_cpu:
            parts_by_name["reference"] = self.reference
        return parts_by_name

    def weights(self) -> float:
        """Return the bytes of the policy's weights, which are smaller if it is quantised."""
        kind = self.config.policy.quantization
        quantised_weights = [weight for weight in self.shape.weights if kind != "none" and is_linear(weight)]
        bytes_per_value = WEIGHT_BYTES[kind]
        values = sum(weight.values for weight in quantised_weights)
        scales = sum(weight.shape[0] for weight in quantised_weights) * self.width if kind == "int8" else 0
        unquantised_values = self.shape.parameters - values + self.shape.other_weights
        return unquantised_values * self.width + values * bytes_per_value + scales

    def shards(self) -> float:
        """Return the bytes of this device's part of the weight copy with which FSDP computes gradients."""
        if self.ranks == 1:
            return 0.0
        adapter = self.values * self.trained_width if self.adapter else 0
        return (self.weights() + adapter) / self.devices

    @property
    def gathered(self) -> float:
        """Maximum number of values that FSDP holds unsharded: those outside of the layers, and two layers."""
        if self.ranks == 1:
            return 0.0
        layers = [sum(weight.values for weight in weights) for weights in self.shape.layers.values()]
        return self.shape.parameters - sum(layers) + 2 * max(layers, default=0)

    def optimizer(self) -> float:
        """Return the bytes of this device's master weights and moments, without paged moments."""
        has_masters = self.trained_width != 4 or self.config.resources.offload_optimizer
        return (4 * self.values / self.devices if has_masters else 0) + self._moments(is_paged_part=False)

    def _moments(self, *, is_paged_part: bool) -> float:
        """Return the bytes of this device's paged moments, or of those that are not paged."""
        if self.config.updates.rule != "adam":
            return 0.0
        bytes_per_value, is_paged = MOMENT_BYTES[self.config.optimizer.moments], self.config.optimizer.paged
        selected_values = (
            values for values in self.trained if (is_paged and values >= MIN_PAGED_VALUES) == is_paged_part
        )
        return (
            sum(
                values * (8 if values < MIN_QUANTIZED_VALUES else bytes_per_value)
                for values in selected_values
            )
            / self.devices
        )

    @property
    def reference(self) -> float:
        """Bytes of the weights of the reference policy. With a new adapter, the base is the reference."""
        objective = self.config.objective
        is_base = isinstance(self.config.policy.adapter, LoraAdapter) and objective.reference.type == "fixed"
        return float(self.values * self.trained_width if objective.needs_reference and not is_base else 0)

    def critic(self) -> float:
        """Return the bytes of the critic's weights and moments: a float32 copy, or a separate adapter."""
        if self.config.objective.advantage.type != "critic":
            return 0.0
        is_offloaded = self.config.resources.offload_optimizer and not self.on_cpu
        resident = 0 if is_offloaded else self._moments(is_paged_part=False)
        weights = self.values * (4 if self.adapter is None else self.trained_width)
        return weights * (1 if self.ranks == 1 else 1 + 1 / self.devices) + resident

    def critic_phase(self) -> list[Parts]:
        """Return the parts of the critic's backward pass, if any, in
        float32 unless it shares an adapted base.
        """
        if self.config.objective.advantage.type != "critic":
            return []
        run = self._forward_pass(4 if self.adapter is None else self.width)
        kept_by_pass = self._kept_bytes(run)
        activations = kept_by_pass.limit(is_recomputed=self.recomputed) + kept_by_pass.recomputed_bytes(
            is_recomputed=self.recomputed
        )
        gradients = 4.0 * self.values / self.devices
        return [{"gradients": gradients if run.rows < self.minibatch else 0, "activations": activations},
                {"gradients": gradients}]  # fmt: skip

    @property
    def recomputed(self) -> bool:
        """Whether layers keep only their inputs and are recomputed in the backward pass."""
        return self.config.resources.activation_checkpointing

    def _kept_bytes(self, run: ForwardPass) -> KeptBytes:
        return kept_bytes(self.shape, run)

    def backward_begin(self) -> Parts:
        """Return the parts when the last backward pass begins: saved
        tensors, and gradients of earlier passes.
        """
        kept_by_pass, logits = self._kept_bytes(self.run), self.logits_bytes(self.run)
        recomputed_bytes = max(0.0, kept_by_pass.recomputed_bytes(is_recomputed=self.recomputed) - logits)
        is_first = self.run.rows >= self.minibatch
        offload = self.config.resources.offload_optimizer and not self.on_cpu
        return {
            "gradients": 0.0 if is_first or offload else 4.0 * self.values / self.devices,
            "gathered": self.gathered * self.width,
            "activations": kept_by_pass.limit(is_recomputed=self.recomputed) + recomputed_bytes,
            "logits": logits,
        }

    @property
    def embeddings_at_end(self) -> float:
        """Bytes of the gradients of embeddings at the end of a backward pass, before they are added up.

        They belong to the input layer, and to an output layer with the same weights, whose gradient is kept
        until they are added.
        """
        if self.adapter is not None or self.devices > 1:
            return 0.0
        has_several_batches = self.run.rows < self.minibatch and self.trained_width == 4
        copies = has_several_batches + (not any(map(is_output, self.shape.weights)))
        return float(copies * self.shape.vocabulary * self.shape.hidden * self.trained_width)

    @property
    def gradients_at_end(self) -> float:
        """Bytes of all gradients at the end of a backward pass: those of the
        pass, and float32 sums of the step.
        """
        has_several_batches = self.run.rows < self.minibatch
        if self.config.resources.offload_optimizer and not self.on_cpu:
            return float(self.trained_width * self.values)
        second_copy = self.trained_width if has_several_batches and self.trained_width != 4 else 0
        whole_layer = self.gathered * self.trained_width if self.adapter is None else 0.0
        return (4 + second_copy) * self.values / self.devices + whole_layer

    def logits_bytes(self, run: ForwardPass) -> float:
        """Return the bytes of the output layer: all logits, or a chunk of logits and all hidden states."""
        tokens = run.rows * self.config.sampling.max_new_tokens
        cap = 4 if self.shape.config.get("final_logit_softcapping") else 0
        chunk = max(1, MAX_CHUNK_LOGITS // self.shape.vocabulary)
        hidden_bytes = tokens * self.shape.hidden * run.value_bytes if tokens > chunk else 0
        return min(tokens, chunk) * self.shape.vocabulary * float(LOGIT_BYTES + cap) + hidden_bytes

    def sampling(self) -> Parts:
        """Return the parts of the memory during sampling. See backend.catalog.policies.sampling.

        A GPU samples as many rows at a time as fit, but at least one group, which is counted here.
        """
        sampling, evaluation = self.config.sampling, self.config.evaluation
        rows = sampling.group_size
        if self.on_cpu:
            evaluated_prompts = evaluation.prompts * evaluation.k if evaluation.every else 0
            trained_rows = math.ceil(sampling.prompts_per_step / self.ranks) * sampling.group_size
            rows = max(
                trained_rows, math.ceil(evaluated_prompts / self.ranks)
            )  # one process evaluates for all
        run = DecodingBatch(
            rows,
            math.ceil(rows / sampling.group_size),
            self.prompt,
            sampling.max_new_tokens,
            2 if sampling.precision == "bfloat16" else self.width,
            is_cut=sampling.top_p < 1 or sampling.top_k > 0,
        )
        return {**sampling_parts(self.shape, run), "sampler": self._sampler_copy(run)}

    def _sampler_copy(self, run: DecodingBatch) -> float:
        """Return the bytes of weight copies for sampling: rounded, and on a CPU also joined or packed."""
        rounded_bytes = self._rounded_copy()
        if not self.on_cpu or self.config.sampling.precision == "int8":
            return rounded_bytes
        is_merged = self.config.sampling.precision != "policy"
        is_adapted = (lambda _: False) if is_merged else self.is_adapted
        values = copied_values(self.shape, is_adapted, is_packed=run.value_bytes == 4)
        return rounded_bytes + values * run.value_bytes

    def _rounded_copy(self) -> float:
        precision = self.config.sampling.precision
        if precision == "policy" or (precision == "bfloat16" and self.width == 2 and self.adapter is None):
            return 0.0
        linear = [weight.values for weight in self.shape.weights if is_linear(weight)]
        merged_bytes = sum(
            weight.values
            for weight in self.shape.weights
            if self.is_adapted(weight) or (is_expert(weight) and adapts_experts(self.adapter))
        )
        merged_bytes *= self.width
        if precision == "bfloat16":
            return float(merged_bytes + (self.shape.parameters * 2 if self.width == 4 else 0))
        experts = sum(weight.values for weight in self.shape.weights if is_expert(weight))
        return float(merged_bytes + sum(linear) * (self.width if self.on_cpu else 1) + experts * self.width)

    def host(self) -> float:
        """Return the bytes in the memory of the host of a GPU."""
        if self.on_cpu:
            return 0.0
        resources = self.config.resources
        host_bytes = PROCESS_BYTES * self.devices + (
            self.optimizer() + 4 * self.values if resources.offload_optimizer else 0
        )
        optimizers = 1 + (self.config.objective.advantage.type == "critic")
        host_bytes += optimizers * self._moments(is_paged_part=True)
        return host_bytes + (self.reference if resources.offload_reference else 0)
