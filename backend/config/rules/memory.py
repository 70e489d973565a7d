"""Refuse contradictory settings of adapters and memory, and warn about doubtful ones."""

from collections.abc import Iterator
from typing import Any

from backend.config.adapters import LoraAdapter, NoAdapter
from backend.config.base import Problem
from backend.config.policies import BUILT_IN
from backend.config.sections import RunSections

MIN_LORA_LEARNING_RATE = 5e-6
"""Learning rate below which a language model with LoRA probably uses a rate for full fine-tuning."""


def memory_errors(config: RunSections) -> Iterator[Problem]:
    """Yield contradictions with an adapter, activation checkpointing, offloading or several devices."""
    resources, is_adapted = config.resources, not isinstance(config.policy.adapter, NoAdapter)
    if is_adapted and config.objective.reference.type == "ema":
        reason = "is ema, but the mean of two adapters is not the mean of what they do to the weights"
        yield "objective.reference.type", f"{reason}: expected fixed, every_n or on_stagnation"
    if is_adapted and resources.offload_reference:
        reason = "is on, but with an adapter the reference shares the policy's weights: expected false"
        yield "resources.offload_reference", reason
    if (quantization := config.policy.quantization) != "none":
        yield from _quantization_errors(config, quantization, is_adapted=is_adapted)
    if resources.ranks > 1:
        yield from _device_errors(config)
    if config.optimizer.paged and config.optimizer.moments == "int4":
        yield "optimizer.moments", "is int4, but bitsandbytes pages float32 or int8: expected one of them"
    if config.optimizer.paged and resources.offload_optimizer:
        reason = "is on, but optimizer.paged already lets the moments leave the GPU: expected false"
        yield "resources.offload_optimizer", reason
    recomputation = "is on, but activations are computed again"
    if resources.activation_checkpointing and config.sampling.routing_replay:
        reason = f"{recomputation} without the replayed routes: sampling.routing_replay must be off"
        yield "resources.activation_checkpointing", reason
    if config.updates.rule == "natural_gradient":
        derivative_reason = "natural_gradient needs a second derivative"
        if resources.activation_checkpointing:
            yield (
                "resources.activation_checkpointing",
                f"{recomputation} once, and {derivative_reason}: expected false",
            )
        if resources.packing == "on":
            reason = (
                f"is on, but {derivative_reason}, which the kernels of packed rows lack: expected auto or off"
            )
            yield "resources.packing", reason


SINGLE_DEVICE_VALUES = {
    "updates.rule": ("adam", "its line search is on one"),
    "updates.resample_each_epoch": (False, "each epoch's old policy is a copy on one"),
    "optimizer.paged": (False, "pages cannot be sharded"),
    "optimizer.moments": ("float32", "shards would cut through the blocks of its values"),
    "policy.quantization": ("none", "rounded weights are not sharded"),
    "resources.offload_optimizer": (False, "the optimizer is sharded over them instead"),
    "resources.offload_reference": (False, "their passes run side by side"),
    "sampling.ahead": (0, "rollouts that run ahead have one device"),
    "sampling.engine.type": ("local", "a server gets its weights from one device"),
    "environment.type": ("none", "turns are sampled on one"),
    "objective.reference.type": ("fixed", "only a reference that stays is the same on all"),
}
"""Fields that must have this value on several devices, each with the reason."""


def _device_errors(config: RunSections) -> Iterator[Problem]:
    """Yield settings that a run on several devices does not support."""
    resources = config.resources
    name = "devices" if resources.devices > 1 else "nodes"
    several = f"but resources.{name} is {getattr(resources, name)}, and"
    for path, (expected, reason) in SINGLE_DEVICE_VALUES.items():
        setting: Any = config
        for name in path.split("."):
            setting = getattr(setting, name)
        if setting != expected:
            actual_text, expected_text = ("on", "false") if setting is True else (setting, expected)
            yield path, f"is {actual_text}, {several} {reason}: expected {expected_text}"
    if resources.packing == "on":
        yield "resources.packing", f"is on, {several} their passes are padded: expected auto or off"


def _quantization_errors(config: RunSections, kind: str, *, is_adapted: bool) -> Iterator[Problem]:
    if not is_adapted:
        reason = f"is {kind}, but rounded weights cannot train: expected policy.adapter = lora with it"
        yield "policy.quantization", reason
    if config.sampling.precision != "policy":
        reason = f"is {config.sampling.precision}, but policy.quantization {kind} already rounds the weights"
        yield "sampling.precision", f"{reason}: expected policy"
    if config.updates.rule == "natural_gradient":
        reason = f"is {kind}, but natural_gradient needs a second derivative: expected none"
        yield "policy.quantization", reason


def memory_warnings(config: RunSections) -> Iterator[str]:
    """Yield warnings about settings that save no memory or learn slowly."""
    resources, optimizer = config.resources, config.optimizer
    is_tiny = any(offer.name == config.policy.name for offer in BUILT_IN)
    if (
        isinstance(config.policy.adapter, LoraAdapter)
        and not is_tiny
        and optimizer.lr < MIN_LORA_LEARNING_RATE
    ):
        yield (
            f"optimizer.lr {optimizer.lr:g} suits full fine-tuning; LoRA needs about ten times as much, "
            "such as 1e-5"
        )
    if resources.offload_reference and not config.objective.needs_reference:
        yield "offload_reference has no effect: the objective has no KL to a reference"
    if optimizer.paged and config.updates.rule == "natural_gradient":
        yield "optimizer.paged has no effect on the policy: natural_gradient keeps no moments"
    if optimizer.moments != "float32" and config.updates.rule == "natural_gradient":
        yield "optimizer.moments has no effect on the policy: natural_gradient keeps no moments"
