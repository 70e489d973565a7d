"""Classes for the results of a diagnosis."""

from typing import Literal, NamedTuple

from backend.analysis.diagnosis.outcome import Interval, Outcome

Tier = Literal["specific", "consistent"]


class Remedy(NamedTuple):
    """The first remedy to try for a cause."""

    words: str
    changes: dict[str, object]
    """New values of config fields by dotted path. Empty if the remedy is not a config change."""
    source: str


class Finding(NamedTuple):
    """A cause for which the log has evidence."""

    cause: str
    title: str
    onset: Interval
    tier: Tier
    """Whether the evidence is specific to the cause, or only consistent with it."""
    strength: float
    """Distance of the metric from its healthy values, from 0 to 1."""
    lasting: float
    """Fraction of the later steps at which the metric was still changed, from 0 to 1."""
    evidence: tuple[str, ...]
    """Sentences that describe the evidence with numbers."""
    metrics: tuple[str, ...]
    """Metrics that are evidence. The onset is that of the first one."""
    is_in_config: bool = False
    """Whether a config setting is evidence. If so, the first sentence of the evidence names it."""


class Unjudged(NamedTuple):
    """A cause that cannot be judged because the log lacks data."""

    cause: str
    title: str
    needs: str
    """Missing data, as the end of a sentence."""


class RankedCause(NamedTuple):
    """A finding with its rank among the causes."""

    finding: Finding
    share: float
    """Share of the total score of all root causes, or 0 if another cause explains it."""
    explained_by: str
    """Cause that explains this one, or "" for a root cause."""
    remedy: Remedy


class Diagnosis(NamedTuple):
    """The verdict on a run, with onset, causes and remedies."""

    outcome: Outcome
    onset: Interval | None
    """Onset of the first root cause, or of the goal's fall if no cause was found."""
    first_signals: tuple[str, ...]
    """Metrics that changed first. There are several if their intervals overlap."""
    causes: tuple[RankedCause, ...]
    warnings: tuple[Finding, ...]
    """Findings that did not cause a fall of the goal."""
    unjudged: tuple[Unjudged, ...]
