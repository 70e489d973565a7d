"""HTTP route of the ablation matrix."""

import math
from collections.abc import Iterable, Sequence
from typing import Annotated

from fastapi import Query, Request
from sqlalchemy import select
from sqlalchemy.orm import Session
from starlette.responses import Response

from backend.base.errors import FieldError, InvalidRequest
from backend.config.metrics import find_metric
from backend.experiments.matrix.readings import READINGS, THRESHOLDS, Column
from backend.experiments.matrix.schemas import Matrix
from backend.experiments.matrix.table import Row, make_matrix, metric_direction
from backend.experiments.store import find_experiment, load_runs
from backend.http.dependencies import ReadSession
from backend.http.paging import split_list
from backend.http.routing import Router
from backend.http.shared_responses import SharedAnswersOf
from backend.metrics.known import require_known
from backend.metrics.lineage import load_stamps
from backend.storage.models import Experiment, Run

router = Router(prefix="/api/v1", tags=["experiments"])

MAX_RUNS = 500
MAX_COLUMNS = 16
MAX_CURVES = 2_000
"""Maximum number of runs times metrics."""

COLUMNS = (
    "eval/accuracy:final,eval/accuracy:equal_tokens,"
    "reward/accuracy:final,length/mean:final,policy/entropy:final"
)


@router.get("/matrix", response_model=Matrix)
def matrix(
    request: Request,
    session: ReadSession,
    answers: SharedAnswersOf,
    experiment: Annotated[str, Query(max_length=64, description="Id; a row per variant.")] = "",
    runs: Annotated[
        str,
        Query(
            max_length=20_000,
            description="Ids, separated by commas, instead of an experiment: a row per variant, or one per "
            "group where semicolons end or separate groups.",
        ),
    ] = "",
    metrics: Annotated[
        str,
        Query(
            max_length=4_000,
            description="Columns `<metric>:<reading>`, separated by commas; readings are `final`, `best`, "
            "`equal_tokens`, `auc`, and `steps_to`, `tokens_to` or `seconds_to` with `:<threshold>`.",
        ),
    ] = COLUMNS,
    baseline: Annotated[
        str, Query(max_length=200, description="Variant, or id of a run of it; the first by default.")
    ] = "",
    planned: Annotated[
        int | None,
        Query(
            ge=0,
            le=1000,
            description="Seeds per variant that were fixed before anybody looked; by default those of the "
            "launch of an experiment. 0: no plan, intervals are always-valid.",
        ),
    ] = None,
) -> Response:
    """Compare variants by mean and interval over seeds, difference from a baseline, and the claims that these
    allow.

    Differences are paired by seed if seeds are shared, and corrected over the table by Holm's procedure.
    """
    columns = _parse_columns(metrics)
    require_known(session, list(dict.fromkeys(column.metric for column in columns)), "metrics")
    rows, missing_ids = _load_rows(session, experiment, runs)
    all_runs = [run for row in rows for run in row.runs]
    _check_size(len(all_runs), columns)
    seeds = _count_launched_seeds(session, all_runs) if planned is None else planned or None
    base = _baseline_index(rows, baseline)
    state = [
        [(run.id, run.name, run.status, run.verdict, run.last_step, run.judged_step) for run in all_runs],
        load_stamps(session, [run.id for run in all_runs]),
        seeds,
    ]
    return answers.answer(
        request,
        state,
        lambda: (
            make_matrix(session, rows, columns, baseline=base, planned_seeds=seeds) | {"missing": missing_ids}
        ),
    )


def _parse_columns(text: str) -> list[Column]:
    columns, errors = [], []
    for column_text in split_list(text):
        try:
            columns.append(_parse_column(column_text))
        except ValueError as error:
            errors.append(FieldError("metrics", str(error)))
    if not columns and not errors:
        errors.append(FieldError("metrics", "is empty; expected at least one column"))
    if len(columns) > MAX_COLUMNS:
        errors.append(FieldError("metrics", f"has {len(columns)} columns; expected at most {MAX_COLUMNS}"))
    if errors:
        raise InvalidRequest(errors)
    return list(dict.fromkeys(columns))


def _parse_column(text: str) -> Column:
    """Parse `<metric>`, `<metric>:<reading>` or `<metric>:<reading>:<threshold>`; raise ValueError if it is
    invalid.
    """
    metric, _, last = text.rpartition(":")
    metric_before, _, reading = metric.rpartition(":")
    if metric_before and reading in THRESHOLDS:
        try:
            threshold = float(last)
        except ValueError:
            threshold = math.nan
        if not math.isfinite(threshold):
            raise ValueError(
                f"the threshold of {metric_before}:{reading} is {last[:40]!r}; expected a number"
            )
        _require_direction(metric_before, reading)
        return Column(metric_before, reading, threshold)
    if not metric:
        return Column(text, "final")
    if last in THRESHOLDS:
        raise ValueError(f"{metric}:{last} needs a threshold, as in {metric}:{last}:0.5")
    if last not in READINGS:
        raise ValueError(f"there is no reading {last[:40]!r}; there are {', '.join(READINGS)}")
    if last == "best":
        _require_direction(metric, last)
    return Column(metric, last)


def _require_direction(metric: str, reading: str) -> None:
    if find_metric(metric) is not None and not metric_direction(metric):
        raise ValueError(f"{metric} is neither better higher nor lower, so it has no {reading}")


def _load_rows(session: Session, experiment: str, runs: str) -> tuple[list[Row], list[str]]:
    """Return rows in the order of the request or launch, and the ids of requested runs that do not exist."""
    if bool(experiment) == bool(runs.strip(";, ")):
        raise InvalidRequest([FieldError("runs", "name either an experiment or runs")])
    if experiment:
        find_experiment(session, experiment)
        if rows := _group_by_variant(load_runs(session, experiment)):
            return rows, []
        raise InvalidRequest([FieldError("experiment", "has no runs; they may have been deleted")])
    groups = [group for group in (split_list(group_text) for group_text in runs.split(";")) if group]
    ids = [run for group in groups for run in group]
    if len(set(ids)) > MAX_RUNS:
        raise InvalidRequest(
            [FieldError("runs", f"names {len(set(ids))} runs; at most {MAX_RUNS} are allowed")]
        )
    if repeated_ids := sorted({run for run in ids if ids.count(run) > 1}):
        raise InvalidRequest(
            [FieldError("runs", f"{repeated_ids[0]!r} is in several groups; name each run once")]
        )
    query = select(Run).where(Run.id.in_(ids), Run.deleting_at.is_(None)).order_by(Run.id)
    runs_by_id = {run.id: run for run in session.scalars(query)}
    missing_ids = [run for run in ids if run not in runs_by_id]
    if not runs_by_id:
        raise InvalidRequest([FieldError("runs", "none of these runs exists; they may have been deleted")])
    if ";" not in runs:
        return _group_by_variant(runs_by_id.values()), missing_ids
    row_members = [
        sorted((runs_by_id[run] for run in group if run in runs_by_id), key=lambda run: run.id)
        for group in groups
    ]
    return _name_rows(members_of_row for members_of_row in row_members if members_of_row), missing_ids


def _group_by_variant(runs: Iterable[Run]) -> list[Row]:
    """Return a row per variant, config and fork step, in the order of their first runs."""
    variants: dict[tuple[str, str, int | None], list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.id):
        variants.setdefault((run.variant, run.config_hash, run.fork_step), []).append(run)
    return _name_rows(variants.values())


def _name_rows(groups: Iterable[Sequence[Run]]) -> list[Row]:
    """Return rows named by their variants, and by their configs and forks if a variant has several."""
    groups = list(groups)
    names = [group[0].variant for group in groups]
    return [
        Row(name if names.count(name) == 1 else f"{name} · {_mark(group[0])}", group)
        for name, group in zip(names, groups, strict=True)
    ]


def _mark(run: Run) -> str:
    digest = run.config_hash[:6]
    return digest if run.fork_step is None else f"{digest} · fork at {run.fork_step}"


def _check_size(runs: int, columns: Sequence[Column]) -> None:
    metrics = len({column.metric for column in columns})
    if runs * metrics > MAX_CURVES:
        reason = f"{runs} runs x {metrics} metrics are more than the {MAX_CURVES} curves of a matrix"
        raise InvalidRequest([FieldError("metrics", reason)])


def _count_launched_seeds(session: Session, runs: Sequence[Run]) -> int | None:
    """Return the number of seeds per variant with which the only experiment of these runs was launched, or
    None.

    An imported log has no plan, and neither has an experiment to which runs were added.
    """
    ids = {run.experiment_id for run in runs}
    if len(ids) != 1 or None in ids or any(run.origin for run in runs):
        return None
    experiment = session.get(Experiment, ids.pop())
    seeds = experiment.request.get("seeds") if experiment else None
    return len(seeds) if isinstance(seeds, list) and seeds else None


def _baseline_index(rows: Sequence[Row], name: str) -> int:
    for index, row in enumerate(rows):
        if name in {"", row.name, row.runs[0].variant} or any(run.id == name for run in row.runs):
            return index
    names = ", ".join(dict.fromkeys(row.name for row in rows))
    reason = f"the baseline {name!r} is not among these runs, it may have been deleted; there are: {names}"
    raise InvalidRequest([FieldError("baseline", reason)])
