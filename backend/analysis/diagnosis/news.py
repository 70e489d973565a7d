"""Compare successive diagnoses of a run, and describe the changes as events."""

from typing import Any, Literal, NamedTuple

from backend.analysis.diagnosis.diagnose import UNHEALTHY_VERDICTS
from backend.analysis.diagnosis.findings import Diagnosis, Finding
from backend.analysis.diagnosis.outcome import Interval, describe_interval
from backend.analysis.diagnosis.signs import TITLES
from backend.config.causes import Verdict

LEVEL_BY_VERDICT: dict[Verdict, str] = {"collapsed": "error", "declining": "warning"}
"""Level of the event for each verdict. All other verdicts have the level `info`."""


class News(NamedTuple):
    """A change of the verdict, or a new warning."""

    kind: Literal["verdict", "warning"]
    level: str
    message: str
    data: dict[str, Any]
    onset: Interval | None
    """Onset of the reported problem, before which a checkpoint should be kept."""


def news(previous: Diagnosis | None, current: Diagnosis) -> list[News]:
    """Return the changes between two diagnoses of a run. An initial inconclusive verdict is not a change."""
    old_verdict = previous.outcome.verdict if previous else "inconclusive"
    verdict_change = verdict_news(old_verdict, current)
    changes = [verdict_change] if verdict_change else []
    if current.outcome.verdict in UNHEALTHY_VERDICTS:
        return changes  # other findings after a fall are its consequences
    causes_before = {finding.cause for finding in list_findings(previous)} if previous else set()
    return changes + [_warning(warning) for warning in current.warnings if warning.cause not in causes_before]


def list_findings(diagnosis: Diagnosis) -> list[Finding]:
    """Return all causes and warnings of a diagnosis."""
    return [ranked_cause.finding for ranked_cause in diagnosis.causes] + list(diagnosis.warnings)


def first_cause(diagnosis: Diagnosis) -> str:
    """Return the first root cause, or "" if there is none."""
    return next(
        (ranked_cause.finding.cause for ranked_cause in diagnosis.causes if not ranked_cause.explained_by), ""
    )


def summarize_diagnosis(diagnosis: Diagnosis) -> str:
    """Return a summary such as "collapsed: Updates are too large, between steps 60 and 70"."""
    cause = first_cause(diagnosis)
    clauses = [TITLES[cause] if cause else "", describe_interval(diagnosis.onset)]
    details = ", ".join(text for text in clauses if text)
    verdict = diagnosis.outcome.verdict.replace("_", " ")
    return f"{verdict}: {details}" if details else verdict


def verdict_news(old_verdict: str, current: Diagnosis) -> News | None:
    """Return the change of the verdict, or None if it is the same."""
    outcome = current.outcome
    if outcome.verdict == old_verdict:
        return None
    event_data = {
        "verdict": outcome.verdict,
        "before": old_verdict,
        "goal": outcome.goal,
        "cause": first_cause(current),
        "onset": current.onset and current.onset._asdict(),
    }
    message = f"verdict {summarize_diagnosis(current)}; it was {old_verdict.replace('_', ' ')}"
    onset = current.onset if outcome.verdict in UNHEALTHY_VERDICTS else None
    return News("verdict", LEVEL_BY_VERDICT.get(outcome.verdict, "info"), message, event_data, onset)


def _warning(finding: Finding) -> News:
    message = f"warning: {finding.title}, {describe_interval(finding.onset)}; {finding.evidence[0]}"
    event_data = {"warning": finding.cause, "onset": finding.onset._asdict()}
    return News("warning", "warning", message, event_data, finding.onset)
