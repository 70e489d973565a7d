"""Counters of a run, which are stored in its checkpoints."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from worker.outcome import Status


@dataclass(slots=True)
class RunCounters:
    """Counters of a run, one part of its state."""

    step: int = 0
    """Last completed step."""
    cursor: int = 0
    """Number of prompts used."""
    tokens: int = 0
    """Number of tokens generated."""
    wall_seconds: float = 0.0
    """Training time in seconds, excluding pauses."""
    empty_steps: int = 0
    """Number of consecutive steps without signal."""
    short_steps: int = 0
    """Number of consecutive steps that refilling could not fill."""
    skipped_steps: int = 0
    """Number of consecutive steps in which no update was finite."""
    accuracy: float | None = None
    """Accuracy at this step that selects the best checkpoint; None if it was not measured."""
    decision: tuple[Status, str] | None = None
    """Status and reason with which a stop rule ended the run after this step, if one did."""
    microbatch_tokens: int = 0
    """Largest number of tokens of a micro-batch that fits in memory, or 0 if memory never ran out."""
    sampled_rows: int = 0
    """Largest number of completions sampled at once that fits in memory, or 0 if memory never ran out."""

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
