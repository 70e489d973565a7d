"""News of a diagnosis: what changed since the one before, as lines of a run's history."""

from typing import Any, Literal, NamedTuple

from backend.analysis.diagnosis.diagnose import ILL
from backend.analysis.diagnosis.findings import Diagnosis, Finding
from backend.analysis.diagnosis.outcome import Interval, between
from backend.analysis.diagnosis.signs import TITLES
from backend.config.causes import Verdict

LEVELS: dict[Verdict, str] = {"collapsed": "error", "declining": "warning"}
"""Level of the event by verdict; `info` for all other verdicts."""


class News(NamedTuple):
    """A change of the verdict, or a new warning."""

    kind: Literal["verdict", "warning"]
    level: str
    message: str
    data: dict[str, Any]
    onset: Interval | None
    """Onset of the reported problem; a checkpoint from before it is worth keeping."""


def news(before: Diagnosis | None, now: Diagnosis) -> list[News]:
    """Changes between two diagnoses of one run; that there is too little to judge at first is none."""
    was = before.outcome.verdict if before else "inconclusive"
    verdict = verdict_news(was, now)
    told = [verdict] if verdict else []
    if now.outcome.verdict in ILL:
        return told  # signs behind a fall are its consequences
    causes_before = {finding.cause for finding in findings_of(before)} if before else set()
    return told + [_warning(warning) for warning in now.warnings if warning.cause not in causes_before]


def findings_of(diagnosis: Diagnosis) -> list[Finding]:
    """Every sign of a diagnosis, whether it is called a cause or a warning."""
    return [ranked.finding for ranked in diagnosis.causes] + list(diagnosis.warnings)


def first_cause(diagnosis: Diagnosis) -> str:
    """Return the first of the causes that stand for themselves; empty if there is none."""
    return next((ranked.finding.cause for ranked in diagnosis.causes if not ranked.explained_by), "")


def summary_of(diagnosis: Diagnosis) -> str:
    """Verdict, cause and onset: "collapsed: Updates are too large, between steps 60 and 70"."""
    cause = first_cause(diagnosis)
    parts = [TITLES[cause] if cause else "", between(diagnosis.onset)]
    about = ", ".join(text for text in parts if text)
    verdict = diagnosis.outcome.verdict.replace("_", " ")
    return f"{verdict}: {about}" if about else verdict


def verdict_news(was: str, now: Diagnosis) -> News | None:
    """Return the change of the verdict, if it is one."""
    outcome = now.outcome
    if outcome.verdict == was:
        return None
    data = {
        "verdict": outcome.verdict,
        "before": was,
        "goal": outcome.goal,
        "cause": first_cause(now),
        "onset": now.onset and now.onset._asdict(),
    }
    message = f"verdict {summary_of(now)}; it was {was.replace('_', ' ')}"
    onset = now.onset if outcome.verdict in ILL else None
    return News("verdict", LEVELS.get(outcome.verdict, "info"), message, data, onset)


def _warning(finding: Finding) -> News:
    message = f"warning: {finding.title}, {between(finding.onset)}; {finding.evidence[0]}"
    data = {"warning": finding.cause, "onset": finding.onset._asdict()}
    return News("warning", "warning", message, data, finding.onset)
