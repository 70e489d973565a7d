"""Schemas of a diagnosis in the API."""

from typing import Any

from backend.analysis.diagnosis.findings import Tier
from backend.base.documented import Documented
from backend.config.causes import Verdict
from backend.runs.schemas import Steps


class RemedyItem(Documented):
    """The first remedy to try for a cause."""

    words: str
    changes: dict[str, Any]
    """New values of config fields by dotted path. Empty if the remedy is not a config change."""
    source: str


class FindingItem(Documented):
    """A cause for which the log has evidence."""

    cause: str
    title: str
    onset: Steps
    tier: Tier
    strength: float
    lasting: float
    evidence: list[str]
    metrics: list[str]
    is_in_config: bool
    """Whether a config setting is evidence. If so, the first sentence of the evidence names it."""


class CauseItem(FindingItem):
    """A finding with its rank among the causes."""

    share: float
    """Share of the total score of all root causes, from 0 to 1, or 0 if another cause explains it."""
    explained_by: str
    """Cause that explains this one, or "" for a root cause."""
    remedy: RemedyItem


class UnjudgedItem(Documented):
    """A cause that cannot be judged because the log lacks data."""

    cause: str
    title: str
    needs: str


class DiagnosisItem(Documented):
    """The verdict on a run, with onset, causes and remedies."""

    verdict: Verdict
    goal: str
    """Metric that was judged, or "" if the log has none."""
    start: float | None
    best: float | None
    """Maximum of the smoothed goal, corrected for the selection of the best of many windows."""
    best_step: int
    end: float | None
    note: str
    onset: Steps | None
    """Onset of the first root cause, or of the goal's fall if no cause was found."""
    fall: Steps | None
    """Onset of the goal's fall."""
    first_signals: list[str]
    causes: list[CauseItem]
    warnings: list[FindingItem]
    """Findings that did not cause a fall of the goal."""
    unjudged: list[UnjudgedItem]
