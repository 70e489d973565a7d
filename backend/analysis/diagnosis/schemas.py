"""Shapes of the diagnosis in the HTTP interface."""

from typing import Any

from backend.analysis.diagnosis.findings import Tier
from backend.base.documented import Documented
from backend.config.causes import Verdict
from backend.runs.schemas import Steps


class RemedyItem(Documented):
    """The first thing to try against a cause."""

    words: str
    changes: dict[str, Any]
    """Fields of the run's config by dotted path; empty if the remedy is not a knob."""
    source: str


class FindingItem(Documented):
    """A sign that the log shows."""

    cause: str
    title: str
    onset: Steps
    tier: Tier
    strength: float
    lasting: float
    evidence: list[str]
    metrics: list[str]
    is_in_config: bool
    """Whether a setting of the run speaks for it, which the first sentence of the evidence names then."""


class CauseItem(FindingItem):
    """A finding with its place among the causes."""

    share: float
    """Cause's share among the causes that no other cause explains; 0 to 1."""
    earliness: float
    """1 for the first signal, less for later ones."""
    explained_by: str
    """The cause that it follows from; empty if it stands for itself."""
    remedy: RemedyItem


class UnjudgedItem(Documented):
    """A cause that the log cannot speak for or against."""

    cause: str
    title: str
    needs: str


class DiagnosisItem(Documented):
    """Verdict on a run, with onset, causes and remedies."""

    verdict: Verdict
    goal: str
    """The metric that was judged; empty if the log has none."""
    start: float | None
    best: float | None
    """Best value of the smoothed goal, corrected for the luck of the best of many windows."""
    best_step: int
    end: float | None
    note: str
    onset: Steps | None
    """Steps of the onset of the first signal, or of the goal's fall if there is no signal."""
    fall: Steps | None
    """Steps of the goal's fall."""
    first_signals: list[str]
    causes: list[CauseItem]
    warnings: list[FindingItem]
    """Signs that did not make the goal fall."""
    unjudged: list[UnjudgedItem]
