"""Route of the diagnosis of one run."""

import math
from typing import Any

import numpy as np
from fastapi import APIRouter
from sqlalchemy.orm import Session

from backend.db.models import Run
from backend.diagnosis.diagnose import diagnose
from backend.diagnosis.findings import Diagnosis, Finding, Ranked
from backend.diagnosis.log import Log, Series
from backend.diagnosis.schemas import DiagnosisItem
from backend.errors import RunNotFound
from backend.http.dependencies import ReadSession
from backend.http.problem_details import ERRORS
from backend.http.responses import Json
from backend.metrics.reading import read_curves
from backend.metrics.series import Curve

router = APIRouter(prefix="/api/v1/runs", tags=["runs"], responses=ERRORS)

MOST_POINTS = 5_000
"""Of a series; longer ones are judged by the medians of equal parts."""

READ = (
    "reward/accuracy",
    "eval/accuracy",
    "reward/correctness/mean",
    "reward/mean",
    "policy/entropy",
    "policy/token_prob_mean",
    "policy/distinct_frac",
    "policy/lift_right",
    "text/repetition",
    "text/compression",
    "text/structure_ok",
    "text/structure_polluted",
    "text/structure_broken",
    "text/unusual_script_frac",
    "length/mean",
    "length/truncated_frac",
    "groups/zero_variance_frac",
    "groups/all_wrong_frac",
    "reward/unearned_share",
    "kl/k1",
    "kl/k2",
    "kl/k3",
    "loss/total",
    "loss/policy",
    "loss/kl",
    "loss/entropy",
    "optim/grad_norm",
    "optim/lr",
    "optim/updates",
    "optim/update_norm",
    "optim/kl_share",
    "optim/skipped",
    "ratio/max",
    "clip/low_frac",
    "clip/high_frac",
    "sampling/staleness",
    "mismatch/k3",
    "mismatch/prob_diff_mean",
    "mismatch/ess",
    "router/expert_change_frac",
    "router/shift_mean",
    "critic/loss",
    "critic/explained_variance",
)
"""Metrics that a detector reads."""


@router.get("/{run_id}/diagnosis", response_model=DiagnosisItem)
def of_run(session: ReadSession, run_id: str) -> Json:
    """Verdict on the run's goal, what broke first and what to try, by its metrics as they are now."""
    return Json(shown(diagnose(log_of(session, run_id))))


def log_of(session: Session, run_id: str) -> Log:
    """The log of a run; a fork's begins with the steps it inherited."""
    run = session.get(Run, run_id)
    if run is None or run.deleting_at is not None:
        raise RunNotFound(run_id)
    curves = read_curves(session, [run_id], READ, "step")
    series = {metric: _series(curve) for (_, metric), curve in curves.items()}
    config = {} if run.origin else run.config  # another trainer's fields mean other things
    return Log(series, config, run.status, run.reason)


def _series(curve: Curve) -> Series:
    if len(curve) <= MOST_POINTS:
        return Series(curve.steps, curve.values)
    parts = np.array_split(np.arange(len(curve)), MOST_POINTS)
    values = np.array([_middle(curve.values[part]) for part in parts])
    return Series(curve.steps[[part[-1] for part in parts]], values)


def _middle(values: Any) -> float:
    """The median; a value that is not finite shows."""
    return float(np.median(values)) if np.isfinite(values).all() else math.nan


def shown(diagnosis: Diagnosis) -> dict[str, Any]:
    """The diagnosis as JSON shows it."""
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
        "causes": [_cause(each) for each in diagnosis.causes],
        "warnings": [_finding(each) for each in diagnosis.warnings],
        "unjudged": [each._asdict() for each in diagnosis.unjudged],
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _finding(finding: Finding) -> dict[str, Any]:
    return finding._asdict() | {"onset": finding.onset._asdict()}


def _cause(ranked: Ranked) -> dict[str, Any]:
    return _finding(ranked.finding) | {
        "share": ranked.share,
        "earliness": ranked.earliness,
        "explained_by": ranked.explained_by,
        "remedy": ranked.remedy._asdict(),
    }
