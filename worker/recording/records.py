"""Records that the trainer passes to the recorder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backend.analysis.diagnosis.outcome import Interval
from backend.rollouts.records import GroupRecord
from backend.runs.checkpoints import KeptFor


@dataclass(frozen=True, slots=True)
class EventRecord:
    """An event that becomes a line in the run's history."""

    kind: str
    level: str
    message: str
    step: int | None
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class VerdictRecord:
    """The diagnosis of a run in its stored form, with the checkpoints that it keeps."""

    columns: Mapping[str, Any]
    """Columns of the run's row."""
    onsets: Mapping[KeptFor, Interval] = field(default_factory=dict)
    """Onsets before which a checkpoint must be kept."""


@dataclass(frozen=True, slots=True)
class LifeRecord:
    """A sign that the trainer works on a task that takes longer than a step."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """All data of one step."""

    step: int
    """Step number 1..N; 0 is the evaluation before training."""
    metrics: Mapping[str, float]
    groups: Sequence[GroupRecord] = ()
    is_alarmed: bool = False
    """True if an alarm was raised, so that every group is stored."""
