"""Route for the diagnosis of a run."""

import math
from typing import Any

from backend.analysis.diagnosis.diagnose import diagnose
from backend.analysis.diagnosis.findings import Diagnosis, Finding, RankedCause
from backend.analysis.diagnosis.schemas import DiagnosisItem
from backend.analysis.diagnosis.store import load_log
from backend.http.dependencies import ReadSession
from backend.http.responses import Json
from backend.http.routing import Router

router = Router(prefix="/api/v1/runs", tags=["runs"])


@router.get("/{run_id}/diagnosis", response_model=DiagnosisItem)
def of_run(session: ReadSession, run_id: str) -> Json:
    """Diagnose a run from its current metrics, with a verdict, causes and remedies."""
    return Json(diagnosis_json(diagnose(load_log(session, run_id))))


def diagnosis_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as the fields of a DiagnosisItem."""
    outcome = diagnosis.outcome
    return {
        "verdict": outcome.verdict,
        "goal": outcome.goal,
        "start": _number(outcome.start),
        "best": _number(outcome.best),
        "best_step": outcome.best_step,
        "end": _number(outcome.end),
        "note": outcome.note,
        "onset": diagnosis.onset and diagnosis.onset._asdict(),
        "fall": outcome.onset and outcome.onset._asdict(),
        "first_signals": list(diagnosis.first_signals),
        "causes": [_cause(cause) for cause in diagnosis.causes],
        "warnings": [_finding(warning) for warning in diagnosis.warnings],
        "unjudged": [unjudged_cause._asdict() for unjudged_cause in diagnosis.unjudged],
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _finding(finding: Finding) -> dict[str, Any]:
    return finding._asdict() | {"onset": finding.onset._asdict()}


def _cause(ranked_cause: RankedCause) -> dict[str, Any]:
    return _finding(ranked_cause.finding) | {
        "share": ranked_cause.share,
        "explained_by": ranked_cause.explained_by,
        "remedy": ranked_cause.remedy._asdict(),
    }
