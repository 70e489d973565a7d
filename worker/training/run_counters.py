"""Counters of a run, kept in its checkpoint."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from worker.outcome import Status


@dataclass(slots=True)
class RunCounters:
    """Counters of a run; a part of its state."""

    step: int = 0
    """Last finished step."""
    cursor: int = 0
    """Prompts taken."""
    tokens: int = 0
    """Tokens generated."""
    wall_seconds: float = 0.0
    """Training time, pauses left out."""
    empty_steps: int = 0
    """Steps in a row without signal."""
    short_steps: int = 0
    """Steps in a row that refilling could not fill."""
    skipped_steps: int = 0
    """Steps in a row whose every update was not finite."""
    accuracy: float | None = None
    """The accuracy that decides about the best checkpoint, at this very step, if it was measured."""
    decision: tuple[Status, str] | None = None
    """Status and reason for which a stop rule ended the run after this very step, if one did."""
    microbatch_tokens: int = 0
    """Most tokens of a micro-batch that fitted in memory; 0: memory never ran out."""
    sampled_rows: int = 0
    """Most completions that were sampled at once and fitted in memory; 0: memory never ran out."""

    def values(self) -> dict[str, Any]:
        """See Stateful."""
        return asdict(self)

    def tensors(self) -> dict[str, Tensor]:
        """See Stateful."""
        return {}

    def restore(self, values: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:  # noqa: ARG002
        """See Stateful."""
        for name, value in values.items():
            setattr(self, name, value)
