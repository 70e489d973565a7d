"""Records that the trainer hands to the recorder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backend.analysis.diagnosis.outcome import Interval
from backend.rollouts.records import GroupRecord
from backend.runs.checkpoints import KeptFor


@dataclass(frozen=True, slots=True)
class EventRecord:
    """Something worth a line in the run's history."""

    kind: str
    level: str
    message: str
    step: int | None
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class VerdictRecord:
    """A diagnosis of the run as it is stored, with what it keeps."""

    columns: Mapping[str, Any]
    """Of the run's row."""
    onsets: Mapping[KeptFor, Interval] = field(default_factory=dict)
    """Onsets from before which a checkpoint is to be kept."""


@dataclass(frozen=True, slots=True)
class LifeRecord:
    """Word that the trainer works on something that takes longer than a step."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """Everything one step leaves behind."""

    step: int
    """1..N; 0 is the evaluation before training."""
    metrics: Mapping[str, float]
    groups: Sequence[GroupRecord] = ()
    is_alarmed: bool = False
    """Whether something looked wrong: then every group is kept."""
