"""Changes to a config that make a run fit a device, those that cost least first."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from backend.config.adapters import LoraAdapter
from backend.config.merge import merge
from backend.config.run import RunConfig

USABLE = 0.95
"""Share of a device's memory that a run may fill; the rest is lost between the allocator's blocks."""

Peak = Callable[[RunConfig], float]
"""Bytes that a config takes on the device."""


class Change(NamedTuple):
    """A field to change, and what that saves after the changes before it."""

    path: str
    value: Any
    saves_bytes: float


def fitting_changes(
    config: RunConfig, peak: Peak, capacity: float, *, row_tokens: int
) -> list[Change] | None:
    """Changes after which a run takes at most `capacity` bytes; none where it does already, None if no
    changes do.

    Measures are tried in the order of docs/one-gpu.md; one that is not needed in the end is left out.
    """
    chosen: list[tuple[str, Any]] = []
    size = peak(config)
    while size > capacity:
        options = (
            option
            for option in _candidate_changes(_apply_changes(config, chosen) or config, row_tokens)
            if option not in chosen
        )
        for path, value in options:
            other_changes = [change for change in chosen if change[0] != path]
            changed = _apply_changes(config, [*other_changes, (path, value)])
            if changed is not None and (smaller := peak(changed)) < 0.99 * size:
                chosen, size = [*other_changes, (path, value)], smaller
                break
        else:
            return None
    for change in list(chosen):
        remaining = [kept_change for kept_change in chosen if kept_change is not change]
        if (fewer := _apply_changes(config, remaining)) is not None and peak(fewer) <= capacity:
            chosen = remaining
    return list(_with_savings(config, _enlarge_microbatches(config, chosen, peak, capacity), peak))


def _enlarge_microbatches(
    config: RunConfig, chosen: list[tuple[str, Any]], peak: Peak, capacity: float
) -> list[tuple[str, Any]]:
    """Return the changes with micro-batches as large as the others allow."""
    while True:
        larger = [
            (path, 2 * value if path == "resources.microbatch_tokens" else value) for path, value in chosen
        ]
        changed = _apply_changes(config, larger)
        if larger == chosen or changed is None or peak(changed) > capacity:
            return chosen
        chosen = larger


def _with_savings(config: RunConfig, chosen: list[tuple[str, Any]], peak: Peak) -> Iterator[Change]:
    before = peak(config)
    for count, (path, value) in enumerate(chosen, 1):
        changed = _apply_changes(config, chosen[:count])
        after = before if changed is None else peak(changed)
        yield Change(path, value, before - after)
        before = after


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
    """Return the config with some changes; None if they contradict it."""
    fields: Mapping[str, Any] = config.model_dump(mode="json")
    for path, value in changes:
        nested: Any = value
        for name in reversed(path.split(".")):
            nested = {name: nested}
        fields = merge(fields, nested)
    try:
        return RunConfig.model_validate(fields)
    except ValidationError:
        return None
