"""Find the cheapest config changes that make a run fit in device memory."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import JsonValue, ValidationError

from backend.base.documented import Documented
from backend.config.adapters import LoraAdapter
from backend.config.merge import merge
from backend.config.run import RunConfig

USABLE_MEMORY_FRACTION = 0.95
"""Fraction of the device memory that a run can use. The rest is lost to fragmentation."""

PeakMemory = Callable[[RunConfig], float]
"""A function that returns the peak device memory of a config, in bytes."""


class MemoryChange(Documented):
    """A change to a config field that reduces the memory of a run."""

    path: str
    value: JsonValue
    saves_bytes: float
    """Bytes that this change saves in addition to the changes before it."""


def fitting_changes(
    config: RunConfig, peak: PeakMemory, capacity: float, *, row_tokens: int
) -> list[MemoryChange] | None:
    """Return changes after which a run takes at most `capacity` bytes, or None if there are none.

    Return an empty list if the run already fits. Changes are tried in the order of docs/one-gpu.md, and those
    that turn out to be unnecessary are left out.
    """
    selected_changes: list[tuple[str, Any]] = []
    size = peak(config)
    while size > capacity:
        options = (
            option
            for option in _candidate_changes(_apply_changes(config, selected_changes) or config, row_tokens)
            if option not in selected_changes
        )
        for path, value in options:
            other_changes = [change for change in selected_changes if change[0] != path]
            changed_config = _apply_changes(config, [*other_changes, (path, value)])
            if changed_config is not None and (smaller_peak := peak(changed_config)) < 0.99 * size:
                selected_changes, size = [*other_changes, (path, value)], smaller_peak
                break
        else:
            return None
    for change in list(selected_changes):
        remaining_changes = [kept_change for kept_change in selected_changes if kept_change is not change]
        if (smaller_config := _apply_changes(config, remaining_changes)) is not None and peak(
            smaller_config
        ) <= capacity:
            selected_changes = remaining_changes
    return list(_with_savings(config, _enlarge_microbatches(config, selected_changes, peak, capacity), peak))


def _enlarge_microbatches(
    config: RunConfig, selected_changes: list[tuple[str, Any]], peak: PeakMemory, capacity: float
) -> list[tuple[str, Any]]:
    """Return the changes with micro-batches that are as large as the other changes allow."""
    while True:
        larger_changes = [
            (path, 2 * value if path == "resources.microbatch_tokens" else value)
            for path, value in selected_changes
        ]
        changed_config = _apply_changes(config, larger_changes)
        if larger_changes == selected_changes or changed_config is None or peak(changed_config) > capacity:
            return selected_changes
        selected_changes = larger_changes


def _with_savings(
    config: RunConfig, selected_changes: list[tuple[str, Any]], peak: PeakMemory
) -> Iterator[MemoryChange]:
    previous_bytes = peak(config)
    for count, (path, value) in enumerate(selected_changes, 1):
        changed_config = _apply_changes(config, selected_changes[:count])
        changed_bytes = previous_bytes if changed_config is None else peak(changed_config)
        yield MemoryChange(path=path, value=value, saves_bytes=previous_bytes - changed_bytes)
        previous_bytes = changed_bytes


def _candidate_changes(config: RunConfig, row_tokens: int) -> Iterator[tuple[str, Any]]:
    resources, sampling = config.resources, config.sampling
    completions = sampling.prompts_per_step * sampling.group_size
    rows = min(completions, resources.microbatch_completions or completions)
    rows = min(
        rows, max(1, resources.microbatch_tokens // row_tokens) if resources.microbatch_tokens else rows
    )
    if rows > 1:
        yield "resources.microbatch_tokens", row_tokens * (rows // 2)
    yield "resources.activation_checkpointing", True
    yield "optimizer.moments", "int8"
    if config.policy.adapter.type == "none":
        yield "policy.adapter", LoraAdapter().model_dump(mode="json")
    if config.policy.quantization == "none":
        yield "policy.quantization", "nf4"
    yield "resources.offload_reference", True
    yield "resources.offload_optimizer", True


def _apply_changes(config: RunConfig, changes: list[tuple[str, Any]]) -> RunConfig | None:
    """Return the changed config, or None if it is not valid."""
    fields: Mapping[str, Any] = config.model_dump(mode="json")
    for path, value in changes:
        nested_fields: Any = value
        for name in reversed(path.split(".")):
            nested_fields = {name: nested_fields}
        fields = merge(fields, nested_fields)
    try:
        return RunConfig.model_validate(fields)
    except ValidationError:
        return None
