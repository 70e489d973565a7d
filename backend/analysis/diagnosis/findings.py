"""Results of a diagnosis, as its callers show and store them."""

from typing import Literal, NamedTuple

from backend.analysis.diagnosis.outcome import Interval, Outcome

Tier = Literal["specific", "consistent"]


class Remedy(NamedTuple):
    """The first thing to try against a cause."""

    words: str
    changes: dict[str, object]
    """Fields of a run's config by their dotted paths; empty if the remedy is no knob."""
    source: str


class Finding(NamedTuple):
    """A cause that the log speaks for."""

    cause: str
    title: str
    onset: Interval
    tier: Tier
    """Whether the evidence is specific to the cause, or only consistent with it."""
    strength: float
    """0 to 1: how far its metric is from healthy."""
    lasting: float
    """0 to 1: share of the steps afterwards at which it still was."""
    evidence: tuple[str, ...]
    """Sentences with the numbers."""
    metrics: tuple[str, ...]
    """The metrics of those numbers, first of all the one whose onset is given."""
    is_in_config: bool = False
    """Whether a setting of the run speaks for it, which the first sentence of the evidence names then."""


class Unjudged(NamedTuple):
    """A cause that the log cannot speak for or against."""

    cause: str
    title: str
    needs: str
    """What is missing, as a sentence's end."""


class Ranked(NamedTuple):
    """A finding with its place among the causes."""

    finding: Finding
    share: float
    """Cause's share among all causes that no other cause explains."""
    earliness: float
    """1 for the first signal, less for a later one."""
    explained_by: str
    """The cause that has it as a consequence; empty if it stands for itself."""
    remedy: Remedy


class Diagnosis(NamedTuple):
    """Verdict on a run, with onset, causes and remedies."""

    outcome: Outcome
    onset: Interval | None
    """Onset of the first signal, or of the goal's fall if there is no signal."""
    first_signals: tuple[str, ...]
    """Metrics that changed first; several where their intervals overlap."""
    causes: tuple[Ranked, ...]
    warnings: tuple[Finding, ...]
    """Signs without a fall of the goal."""
    unjudged: tuple[Unjudged, ...]
