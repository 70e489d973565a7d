"""Routes of curves."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Annotated, Any, Literal

import numpy as np
from fastapi import Query
from numpy.typing import NDArray
from pydantic import BaseModel
from sqlalchemy import Row
from sqlalchemy.orm import Session
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from backend.config.metrics import has_interval, interval_of
from backend.db.numbers import spell
from backend.db.run_lookup import configs_of, must_exist, names_of
from backend.errors import FieldError, InvalidRequest
from backend.http.dependencies import LabOf, ReadSession
from backend.http.paging import split_list
from backend.http.routing import Router
from backend.http.shared_answers import SharedAnswersOf
from backend.metrics.axes import is_metric
from backend.metrics.csv import csv_lines
from backend.metrics.grouping import ABOUT_RUN, CONFIG, MOST_KEYS, groups_of, is_key
from backend.metrics.known import must_be_known
from backend.metrics.lineage import stamps_of
from backend.metrics.means import PLACES, Picture, average, places_over
from backend.metrics.reading import read_curves
from backend.metrics.series import Curve, Floats, Ints
from backend.metrics.statistics import t_975
from backend.metrics.thinning import is_fine, thin, thin_all, thin_non_finite
from backend.metrics.view import View

router = Router(prefix="/api/v1", tags=["metrics"])

MOST_SERIES = 200
MOST_POINTS = 200_000

TURN_SECONDS = 3.0
"""How long a request for curves waits for those of others."""

_turn = Lock()

COMPACT = (
    "Shorter: `x` only where it is not the step, `steps` as distances to the one before, values in "
    "seven digits."
)

X = (
    "`step`, `wall` (seconds), `tokens`, `samples`, `flops`, or a metric: points whose step has no value of "
    "it are left out, and the others come in the order of its values."
)

GROUP_BY = (
    "`variant`, `experiment`, `tag`, `verdict`, `config` (all but the seed) or `config.<field>`; "
    "several, separated by commas, make a group of each combination."
)

SpreadKind = Literal["", "std", "stderr", "ci95", "minmax"]


class NonFinite(BaseModel):
    """A value that is not a finite number, for a marker at the panel's edge."""

    step: int
    x: float
    value: str


class Origin(BaseModel):
    """The run that a fork's curve comes from."""

    run: str
    """The run that it left; points up to `step` are those of that run, and of the ones before it."""
    step: int


class SeriesItem(BaseModel):
    """One curve: of a run, or the mean of a group of runs."""

    run: str | None = None
    group: str | None = None
    runs: list[str] | None = None
    """The runs of a group."""
    name: str
    metric: str
    x: list[float] | None = None
    """None with `compact` where it is the step."""
    steps: list[int]
    """Of a group along time or tokens: those that its first run had reached."""
    values: list[float]
    """Finite values only."""
    non_finite: list[NonFinite]
    raw_points: int
    """How many points there are in the window, before thinning."""
    n: list[int] | None = None
    """Of a group: how many runs count at each point; fewer than `runs` where some ended or have no value."""
    gaps: list[NonFinite] | None = None
    """Of a group: where none of its runs has a finite value. Its `non_finite` are those of single runs."""
    origin: Origin | None = None
    """Of a fork alone."""
    low: list[float | None] | None = None
    high: list[float | None] | None = None


class Missing(BaseModel):
    """A curve that was requested and does not exist."""

    run: str
    metric: str
    reason: str


class SeriesAnswer(BaseModel):
    """Curves, ready to be drawn."""

    series: list[SeriesItem]
    missing: list[Missing]
    cursor: str | None
    """Give it as `after` to get what has been added since."""


@router.get("/series", response_model=SeriesAnswer, response_model_exclude_none=True)
def series(  # noqa: PLR0913, PLR0917 - these are the parameters of the address
    request: Request,
    session: ReadSession,
    answers: SharedAnswersOf,
    runs: Annotated[str, Query(max_length=8_000, description="Ids, separated by commas.")],
    metrics: Annotated[str, Query(max_length=8_000, description="Names, separated by commas.")],
    x: Annotated[str, Query(max_length=200, description=X)] = "step",
    x_min: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    x_max: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    max_points: Annotated[int, Query(ge=10, le=MOST_POINTS, description="Points per curve.")] = 500,
    smoothing: Annotated[float, Query(ge=0, le=0.999, allow_inf_nan=False)] = 0.0,
    group_by: Annotated[str, Query(max_length=1_000, description=GROUP_BY)] = "",
    band: SpreadKind = "",
    after: Annotated[int | None, Query(ge=-1, le=2**31, description="Only steps after this one.")] = None,
    compact: Annotated[bool, Query(description=COMPACT)] = False,  # noqa: FBT002 - a parameter of the address
) -> Response:
    """Curves of metrics of runs, thinned without losing a spike, the first or the last point.

    The answer has an `ETag`: give it as `If-None-Match`, and nothing is sent until a curve has changed.
    """
    run_ids, names = split_list(runs), split_list(metrics)
    _check_budget(run_ids, names, max_points, group_by=group_by)
    if is_metric(x):
        must_be_known(session, [x], "x")
    must_be_known(session, names, "metrics")
    known = names_of(session, run_ids)
    view = View(x, x_min, x_max, max_points, smoothing, after)

    def make() -> dict[str, Any]:
        with _in_turn():
            answer = _answer(session, run_ids, names, known, view, group_by=group_by, band=band)
            short = {"series": [_compact(item, x) for item in answer["series"]]} if compact else {}
            return answer | short

    state = (
        list(map(tuple, known.values())),
        stamps_of(session, known, known),
    )  # a row shortens what it shows
    return answers.answer(request, state, make)


@contextmanager
def _in_turn() -> Iterator[None]:
    """Wait until nobody else's curves are computed, or for long enough.

    Threads that compute side by side take the interpreter's lock from each other with every row they read:
    eight at once make half as many charts a second as one after another.
    """
    is_ours = _turn.acquire(timeout=TURN_SECONDS)
    try:
        yield
    finally:
        if is_ours:
            _turn.release()


def _answer(
    session: Session,
    run_ids: Sequence[str],
    names: Sequence[str],
    known: Mapping[str, Row[Any]],
    view: View,
    *,
    group_by: str,
    band: SpreadKind,
) -> dict[str, Any]:
    present = [run for run in run_ids if run in known]
    ends = [] if group_by else [end for name in names if has_interval(name) for end in interval_of(name)]
    curves = _read(session, known, present, [*names, *ends], view, is_grouped=bool(group_by))
    if group_by:
        keys = split_list(group_by)
        configs = configs_of(session, present) if any(key.startswith(CONFIG) for key in keys) else {}
        groups = groups_of([known[run] for run in present], configs, keys)
        items = [item for name in names for item in _grouped(curves, groups, name, band, view)]
    else:
        wanted = [(run, name) for name in names for run in present if (run, name) in curves]
        items = _singles(known, curves, wanted, view)
    missing = [_missing(run, name, known) for run in run_ids for name in names if (run, name) not in curves]
    return {"series": items, "missing": missing, "cursor": _cursor(curves, known)}


def _compact(item: dict[str, Any], x: str) -> dict[str, Any]:
    """The same item, shorter; the first of its steps is the distance to 0."""
    short = {name: _in_seven_digits(item[name]) for name in ("values", "low", "high") if name in item}
    distances = item["steps"].copy()
    distances[1:] -= item["steps"][:-1]
    shorter = item | short | {"steps": distances}
    if x == "step":
        del shorter["x"]
    return shorter


SEVEN_DIGITS = np.finfo(np.float32)
LARGEST_COUNT = 2**24
"""Whole numbers from here on have more than seven digits."""


def _in_seven_digits(values: Any) -> NDArray[np.floating]:
    """The values, whole numbers with all of their digits."""
    exact = np.asarray(values, np.float64)
    size = np.abs(exact)
    is_beyond = (size > SEVEN_DIGITS.max) | ((size > 0) & (size < SEVEN_DIGITS.tiny))
    is_count = (size > LARGEST_COUNT) & (exact == np.trunc(exact))
    return exact if (is_beyond | is_count).any() else exact.astype(np.float32)


@router.get("/runs/{run_id}/metrics.csv", response_class=StreamingResponse)
def csv_of_run(
    run_id: str, session: ReadSession, lab: LabOf, attempts: Literal["newest", "all"] = "newest"
) -> StreamingResponse:
    """Every metric of a run as CSV: a row per step; with `attempts=all` also the rows that are hidden."""
    must_exist(session, run_id)
    lines = csv_lines(lab.sessions, run_id, all_attempts=attempts == "all")
    name = f"attachment; filename=metrics-{run_id}.csv"
    return StreamingResponse(
        lines, media_type="text/csv; charset=utf-8", headers={"Content-Disposition": name}
    )


def _check_budget(runs: Sequence[str], metrics: Sequence[str], max_points: int, *, group_by: str) -> None:
    errors = []
    if not runs or not metrics:
        errors.append(FieldError("metrics" if runs else "runs", "expected at least one"))
    if (count := len(runs) * len(metrics)) > MOST_SERIES:
        errors.append(FieldError("runs", f"{count} series were asked for; at most {MOST_SERIES} a call"))
    elif count * max_points > MOST_POINTS:
        reason = (
            f"{count} series of {max_points} points were asked for; at most {MOST_POINTS:,} points a call"
        )
        errors.append(FieldError("max_points", reason))
    keys = split_list(group_by)
    if wrong := [key for key in keys if not is_key(key)]:
        reason = f"is {wrong[0]!r}; expected {', '.join(ABOUT_RUN)} or config.<field>"
        errors.append(FieldError("group_by", reason))
    elif len(keys) > MOST_KEYS:
        errors.append(FieldError("group_by", f"{len(keys)} keys were given; at most {MOST_KEYS}"))
    if errors:
        raise InvalidRequest(errors)


def _read(
    session: Session,
    known: Mapping[str, Any],
    runs: Sequence[str],
    metrics: Sequence[str],
    view: View,
    *,
    is_grouped: bool,
) -> dict[tuple[str, str], Curve]:
    """The curves, or such of their points as the view may show."""
    outlined = None if is_grouped else view.outlined(known.values())
    curves = read_curves(session, runs, metrics, view.x, outlined, known)
    if outlined and not all(
        is_fine(curve.at(view.visible(curve)), view.max_points) for curve in curves.values()
    ):
        return read_curves(session, runs, metrics, view.x, known=known)
    return curves


def _singles(
    known: Mapping[str, Row[Any]],
    curves: Mapping[tuple[str, str], Curve],
    wanted: Sequence[tuple[str, str]],
    view: View,
) -> list[dict[str, Any]]:
    smoothed = [view.smoothed(curves[key]) for key in wanted]
    shown = [curve.at(view.visible(curve)) for curve in smoothed]
    items = []
    for key, curve, places in zip(wanted, shown, thin_all(shown, view.max_points), strict=True):
        kept = places[np.argsort(curve.x[places], kind="stable")]
        items.append(
            _named(known[key[0]], key[1])
            | _drawn(curve, kept, view)
            | _interval(curves, *key, curve.steps[kept], view)
        )
    return items


def _named(run: Row[Any], metric: str) -> dict[str, Any]:
    named = {"run": run.id, "name": run.name, "metric": metric}
    if run.steps and run.fork_step is not None:
        named["origin"] = {"run": run.parent_run, "step": run.fork_step}
    return named


def _interval(
    curves: Mapping[tuple[str, str], Curve], run: str, metric: str, steps: Ints, view: View
) -> dict[str, Any]:
    """The ends of the interval at these steps of a curve, where it is recorded and not smoothed away."""
    ends = [curves.get((run, name)) for name in interval_of(metric)]
    if None in ends or view.smoothing:
        return {}
    values = [dict(zip(end.steps.tolist(), end.values.tolist(), strict=True)) for end in ends if end]
    low, high = ([of_step.get(step) for step in steps.tolist()] for of_step in values)
    return {"low": low, "high": high}


def _drawn(curve: Curve, kept: Any, view: View) -> dict[str, Any]:
    points = curve.at(kept)
    return {
        "x": points.x,
        "steps": points.steps,
        "values": points.values,
        "non_finite": _non_finite(curve.at(thin_non_finite(curve, view.max_points))),
        "raw_points": curve.raw_points,
    }


def _non_finite(curve: Curve) -> list[dict[str, Any]]:
    return [
        {"step": int(step), "x": float(x), "value": spell(float(value))}
        for step, x, value in zip(curve.steps, curve.x, curve.values, strict=True)
    ]


def _grouped(
    curves: Mapping[tuple[str, str], Curve],
    groups: Mapping[str, Sequence[str]],
    metric: str,
    band: SpreadKind,
    view: View,
) -> Iterator[dict[str, Any]]:
    for group, members in groups.items():
        having = [run for run in members if (run, metric) in curves]
        if having:
            smoothed = [view.smoothed(curves[run, metric]) for run in having]
            yield {
                "group": group,
                "name": group,
                "runs": having,
                "metric": metric,
                **_mean(smoothed, band, view),
            }


def _mean(curves: Sequence[Curve], band: SpreadKind, view: View) -> dict[str, Any]:
    """Averaged over whole curves first, then cut: a zoom never changes a mean."""
    places = places_over(curves) if is_metric(view.x) else PLACES
    quantiles = np.array([np.nan, *map(t_975, range(1, len(curves) + 1))])
    whole = average(curves, band, quantiles, Picture(view.max_points, view.x_min, view.x_max, places))
    mean = whole.at(view.visible(whole.mean))
    shown = [curve.at(view.visible(curve)) for curve in curves]
    edges = (mean.low, mean.high) if band else ()
    placed = replace(mean.mean, steps=mean.places)
    kept = thin(placed, view.max_points, *edges)
    drawn = _drawn(mean.mean, kept, view) | {"n": mean.n[kept]}
    drawn["gaps"] = _non_finite(mean.mean.at(thin_non_finite(placed, view.max_points)))
    drawn["non_finite"] = [point for curve in shown for point in _drawn(curve, [], view)["non_finite"]]
    drawn["raw_points"] = sum(map(len, shown))
    if band:
        drawn |= {"low": _nulls(mean.low[kept]), "high": _nulls(mean.high[kept])}
    return drawn


def _nulls(values: Floats) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]


def _missing(run: str, metric: str, known: Mapping[str, Any]) -> dict[str, str]:
    return {"run": run, "metric": metric, "reason": "no points" if run in known else "no such run"}


def _cursor(curves: Mapping[tuple[str, str], Curve], known: Mapping[str, Any]) -> str | None:
    """The step up to which everything was shown: that of the slowest run that still grows."""
    last = dict.fromkeys(known, -1)
    for (run, _), curve in curves.items():
        last[run] = max(last.get(run, -1), int(curve.steps[-1]))
    growing = [step for run, step in last.items() if known[run].status in ("queued", "running", "paused")]
    if growing:
        return str(min(growing))
    return str(max(last.values())) if last and max(last.values()) >= 0 else None
