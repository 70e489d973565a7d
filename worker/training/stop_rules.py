"""Stop rules, which end a run before its last step."""

import threading
from collections.abc import Sequence

from backend.analysis.diagnosis.findings import Diagnosis, Finding
from backend.analysis.diagnosis.news import summarize_diagnosis
from backend.analysis.diagnosis.outcome import describe_interval
from backend.config.sections import StopAfterTime, StopAtAccuracy, StopOnDiagnosis, StopOnNonFinite, StopRule
from backend.runs.lifecycle import STATUS_BY_REQUEST
from worker.outcome import Outcome
from worker.training.run_counters import RunCounters
from worker.training.step_metrics import Metrics

MAX_EMPTY_STEPS = 20
"""Number of consecutive steps without any group that carries signal after which a run stops."""


def request_to_end(stopping: threading.Event, requested_action: str) -> Outcome | None:
    """Return the outcome that the worker or the user requests, or None if there is no request."""
    if stopping.is_set():
        return Outcome("queued", "the worker was asked to stop")
    return (
        Outcome(*STATUS_BY_REQUEST[requested_action], requested_action)
        if requested_action in STATUS_BY_REQUEST
        else None
    )


def reason_to_end(rules: Sequence[StopRule], counters: RunCounters, metrics: Metrics) -> Outcome | None:
    """Return the outcome of the first stop rule that holds after a step, or None if none does."""
    if counters.empty_steps >= MAX_EMPTY_STEPS:
        return Outcome("stopped", "no_signal")
    for rule in rules:
        match rule:
            case StopAtAccuracy(value=value) if metrics.get("eval/accuracy", 0.0) >= value:
                return Outcome("finished", f"held-out accuracy reached {value:g}")
            case StopAfterTime(seconds=seconds) if counters.wall_seconds >= seconds:
                return Outcome("stopped", f"trained for {seconds:g} seconds")
            case StopOnNonFinite(patience=patience) if counters.skipped_steps >= patience:
                return Outcome("failed", f"{patience} steps in a row had no finite loss or gradient")
    return None


def apply_rules(
    rules: Sequence[StopOnDiagnosis], previous_diagnosis: Diagnosis | None, diagnosis: Diagnosis
) -> Outcome | None:
    """Return the outcome of the first rule that holds now and did not hold at the previous diagnosis.

    A run that was paused by a rule therefore continues when it is resumed.
    """
    for rule in rules:
        reason = _rule_reason(rule, diagnosis)
        if reason and not (previous_diagnosis and _rule_reason(rule, previous_diagnosis)):
            return Outcome(
                "paused" if rule.action == "pause" else "stopped", f"stop rule diagnosis: {reason}"
            )
    return None


def _rule_reason(rule: StopOnDiagnosis, diagnosis: Diagnosis) -> str:
    """Return verdict, cause and onset for which the rule holds, or "" if it does not hold."""
    fallen_verdicts = ("collapsed",) if rule.severity == "collapsed" else ("collapsed", "declining")
    findings = [cause.finding for cause in diagnosis.causes if not cause.explained_by]
    match = next((finding for finding in findings if _matches_finding(rule, finding)), None)
    if diagnosis.outcome.verdict in fallen_verdicts and (match or not rule.causes):
        return summarize_diagnosis(diagnosis)
    if rule.severity != "warning":
        return ""
    match = match or next(
        (warning for warning in diagnosis.warnings if _matches_finding(rule, warning)), None
    )
    return f"warning: {match.title}, {describe_interval(match.onset)}" if match else ""


def _matches_finding(rule: StopOnDiagnosis, finding: Finding) -> bool:
    return not rule.causes or finding.cause in rule.causes
