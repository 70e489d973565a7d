"""Imported runs in SQL: insert experiment, run, attempt, points and first event in one transaction."""

import hashlib
import json
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from backend.analysis.diagnosis.log import Log, is_read
from backend.analysis.diagnosis.log import Series as LogSeries
from backend.analysis.diagnosis.store import make_columns, try_diagnosis
from backend.base.redaction import redact_document
from backend.base.text import MAX_DEPTH, clean_text, find_unstorable, is_too_deep
from backend.config.metrics import find_metric
from backend.exchange.imports.plan import Plan, Series
from backend.metrics.store import write_series
from backend.rollouts.store import PackedGroups, write_groups
from backend.runs.events import add_event
from backend.runs.origin import ORIGIN_TITLES
from backend.storage.engine import db_now, insert_into, is_postgres, new_id
from backend.storage.models import Attempt, Experiment, Run
from backend.storage.numbers import spell, spell_all

MAX_CONFIG_BYTES = 262_144
"""Maximum size of another trainer's config; a larger one is left out."""

IMPORTED = {"imported": True}
"""Marks an experiment of imported runs."""


class Names(NamedTuple):
    """Names of the imported run."""

    run: str
    experiment: str
    variant: str
    seed: int
    file: str


class PreparedRun(NamedTuple):
    """Id and rows of completions of a new run, packed before the transaction so that it is short."""

    id: str
    packed: list[PackedGroups]


def prepare_run(plan: Plan) -> PreparedRun:
    """Pack the completions of a run."""
    run_id = new_id()
    completions = plan.log.completions
    return PreparedRun(run_id, completions.pack(run_id) if completions is not None else [])


def store_run(
    session: Session, plan: Plan, names: Names, prepared_run: PreparedRun, *, key: str = "", digest: str = ""
) -> str | None:
    """Insert the run and return its id; None if there is a run with this idempotency key."""
    metadata = plan.log.metadata
    experiment = find_or_create_experiment(session, names)
    row = {
        "id": prepared_run.id,
        "name": names.run,
        "experiment_id": experiment,
        "variant": names.variant,
        "seed": names.seed,
        "config": storable_config(metadata.config)[0],
        "config_hash": variant_hash(experiment, names.variant),
        "steps": max(1, plan.last_step, metadata.steps or 0),
        "status": "failed" if metadata.failure else "finished",
        "reason": clean_text(metadata.failure),
        "attempt": 1,
        "last_step": plan.last_step,
        "summary": summarize_plan(plan),
        "origin": plan.log.origin,
        "origin_file": names.file,
        "idempotency_key": key or None,
        "request_hash": digest or None,
        "started_at": metadata.started_at,
        "finished_at": metadata.finished_at or metadata.started_at,
        **_verdict(plan, names),
    }
    statement = insert_into(session, Run).values(**row).on_conflict_do_nothing()
    run_id: str | None = session.scalar(statement.returning(Run.id))
    if run_id is not None:
        _enter_points(session, run_id, plan, names.file)
        for groups in prepared_run.packed:
            write_groups(session, groups)
    return run_id


def _verdict(plan: Plan, names: Names) -> dict[str, Any]:
    """Return the columns of the diagnosis: an imported run is complete from the beginning."""
    series = {name: LogSeries(*points).thinned() for name, points in plan.series.items() if is_read(name)}
    return make_columns(try_diagnosis(Log(series), names.run) if plan.last_step else None, plan.last_step)


def _enter_points(session: Session, run_id: str, plan: Plan, file: str) -> None:
    metadata = plan.log.metadata
    times = {
        name: timestamp
        for name in ("started_at", "finished_at")
        if (timestamp := getattr(metadata, name)) is not None
    }
    attempt = Attempt(
        run_id=run_id,
        number=1,
        from_step=-1,
        worker_id="",
        host="",
        outcome=metadata.failure or "imported",
        started_at=times.get("started_at", db_now()),
        ended_at=times.get("finished_at", db_now()),
    )
    session.add(attempt)
    session.flush()
    write_series(session, run_id, 1, plan.series)
    title = ORIGIN_TITLES[plan.log.origin]
    message = f"imported from {title}, {file}: {plan.points:,} values of {len(plan.series)} metrics"
    status = "failed" if metadata.failure else "finished"
    add_event(session, "lifecycle", message, run_id=run_id, attempt=1, data={"to": status, "file": file})


def lock_experiment(session: Session, name: str) -> None:
    """Lock the experiment of this name for other imports until the end of the transaction."""
    if is_postgres(session):  # SQLite has a single writer
        session.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(name, 0))))


def find_or_create_experiment(session: Session, names: Names) -> str:
    """Return the newest experiment of imported runs with this name, or create one; add variant and seed.

    Another import that creates an experiment of this name waits until the end of the transaction.
    """
    lock_experiment(session, names.experiment)
    query = (
        select(Experiment).where(Experiment.name == names.experiment).order_by(Experiment.created_at.desc())
    )
    rows = session.scalars(query.with_for_update()).all()
    experiment = next((row for row in rows if row.request.get("imported")), None)
    request: dict[str, Any] = (
        dict(experiment.request) if experiment else {**IMPORTED, "variants": [], "seeds": []}
    )
    if names.variant not in [variant["name"] for variant in request["variants"]]:
        request["variants"] = [*request["variants"], {"name": names.variant}]
    if names.seed not in request["seeds"]:
        request["seeds"] = [*request["seeds"], names.seed]
    if experiment is not None:
        experiment.request = request
        session.flush()
        return experiment.id
    experiment_id = new_id()
    row = {"id": experiment_id, "name": names.experiment, "request": request, "request_hash": ""}
    session.execute(insert(Experiment).values(**row))
    return experiment_id


def variant_hash(experiment: str, variant: str) -> str:
    """Return `run.config_hash` of a run of another trainer, which is equal for all seeds of a variant."""
    return hashlib.sha256(json.dumps([experiment, variant]).encode()).hexdigest()


def summarize_plan(plan: Plan) -> dict[str, Any]:
    """Return the document `run.summary`: the last value of each metric, and the best if one is defined."""
    last_values = {name: spell(float(series.values[-1])) for name, series in plan.series.items()}
    best = {
        name: best_value for name, series in plan.series.items() if (best_value := _find_best(name, series))
    }
    return {"step": plan.last_step, "last": last_values, "best": best}


def _find_best(name: str, series: Series) -> dict[str, Any] | None:
    metric = find_metric(name)
    finite = np.flatnonzero(np.isfinite(series.values))
    if metric is None or not metric.better or not len(finite):
        return None
    values = series.values[finite]
    index = finite[values.argmax() if metric.better == "up" else values.argmin()]
    return {"value": float(series.values[index]), "step": int(series.steps[index])}


def storable_config(config: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return (config without secrets, "") or ({}, reason for omitting it); a large config is not parsed."""
    too_deep = f"The config is left out: it is nested deeper than {MAX_DEPTH} levels."
    try:
        text = json.dumps(config, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        return {}, too_deep
    if (size := len(text.encode(errors="surrogatepass"))) > MAX_CONFIG_BYTES:
        return {}, f"The config is left out: it takes {size:,} bytes; at most {MAX_CONFIG_BYTES:,} are kept."
    if is_too_deep(config):
        return {}, too_deep
    document = redact_document(spell_all(config))
    if problem := find_unstorable(document):
        return {}, f"The config is left out: {problem[0]} {problem[1]}."
    return document, ""
