"""An import from the file to the run: read, plan, name, store."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import count
from pathlib import PurePath
from typing import IO

from sqlalchemy import select
from sqlalchemy.orm import Session

from backend.base.errors import FieldError, InvalidRequest, Unavailable
from backend.base.sandbox.errors import Unusable
from backend.base.text import clean_text
from backend.exchange.imports.additions import add_completions, check_takes, names_of
from backend.exchange.imports.formats import FORMATS, read_logs
from backend.exchange.imports.log import Log
from backend.exchange.imports.plan import Plan, plan_import
from backend.exchange.imports.schemas import ImportAnswer, RunItemOfImport, report_of
from backend.exchange.imports.store import Names, hold_experiment, prepare_run, store_run
from backend.exchange.imports.table import BadLog, excerpt
from backend.http.idempotency import find_previous, request_digest
from backend.storage.engine import Sessions, reading
from backend.storage.models import Experiment, Run

MAX_NAME = 180
"""Characters of a name that the log gives; a number may follow."""

_one_at_a_time = threading.Lock()
"""Lock for reading a log, which takes a whole processor and much memory; a second import waits."""


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """Wishes of the user for a log; everything but the file's name may be left to the guesses."""

    file: str
    """Name of the file: a label, never a path."""
    format: str = ""
    name: str = ""
    experiment: str = ""
    variant: str = ""
    seed: int | None = None
    step: str | None = None
    """Column of steps, or ROW_NUMBER; None if it is guessed."""
    mapping: Mapping[str, str] = field(default_factory=dict)
    runs: Sequence[str] = ()
    """Labels of the runs of the file that are imported; none: all of them."""
    into: str = ""
    """Id of an imported run that gets the completions of the file; "": runs are made."""
    dry_run: bool = False


def import_log(sessions: Sessions, file: IO[bytes], request: ImportRequest, *, key: str = "") -> ImportAnswer:
    """Make the runs of a log, or with `dry_run` only the report of it.

    Raises InvalidRequest for a file that cannot be imported; nothing is stored then.
    """
    format_name, labelled, plans = _plans(file, request)
    digest = request_digest(
        [
            request.file,
            request.name,
            request.experiment,
            request.variant,
            request.into,
            *map(_content, plans.values()),
        ]
    )
    keys = [
        key and (key if not number else f"{sha256(key.encode()).hexdigest()}:{number}")
        for number in range(len(plans))
    ]
    if request.into:
        names = _add(sessions, list(plans.values()), request)
        run_ids: list[str | None] = [request.into]
    else:
        with reading(sessions) as session:
            run_ids = [] if request.dry_run else [find_previous(session, run_key, digest) for run_key in keys]
            if run_ids and None not in run_ids:
                names = [names_of(session, run, request.file) for run in run_ids if run]
            elif request.dry_run:
                names = _names(session, list(plans.values()), request)
        if not request.dry_run and None in run_ids:
            names, run_ids = _store(sessions, list(plans.values()), request, keys, digest)
    ids = dict(zip(plans, run_ids, strict=False)) if not request.dry_run else {}
    first = next(iter(plans.values()))
    names_by_label = dict(zip(plans, names, strict=False))
    return ImportAnswer(
        run=next(iter(ids.values()), None),
        name=names[0].run,
        experiment=names[0].experiment,
        variant=names[0].variant,
        seed=names[0].seed,
        runs=[
            _item(label, log, names_by_label.get(label), ids.get(label)) for label, log in labelled.items()
        ],
        report=report_of(first, format_name),
    )


def _item(label: str, log: Log, names: Names | None, run: str | None) -> RunItemOfImport:
    return RunItemOfImport(
        label=label,
        is_chosen=names is not None,
        run=run,
        name=names.run if names else "",
        rows=len(log.table),
        completions=len(log.completions or ()),
    )


def _plans(file: IO[bytes], request: ImportRequest) -> tuple[str, dict[str, Log], dict[str, Plan]]:
    """(format, all runs of the file by label, plans of those that are chosen)."""
    if request.format and request.format not in FORMATS:
        reason = f"is {request.format!r:.40}; expected one of {', '.join(FORMATS)}"
        raise InvalidRequest([FieldError("format", reason)])
    try:
        with _one_at_a_time:
            format_name, logs = read_logs(file, request.file, request.format or None)
            labelled = _labelled(logs, request.file)
            return format_name, labelled, _planned(_chosen(labelled, request), request)
    except BadLog as error:
        raise InvalidRequest([FieldError("file", f"{request.file} {error}")]) from None
    except Unusable as error:
        raise Unavailable(
            f"binary logs are read in the sandbox, which does not start here: {error}"
        ) from None


def _labelled(logs: list[Log], file: str) -> dict[str, Log]:
    """Return the runs of a file by a name that no other one of it has."""
    labelled: dict[str, Log] = {}
    for log in logs:
        name = clean_text(log.facts.name)[:MAX_NAME] or clean_text(PurePath(file).stem)
        labelled[next(label for label in _numbered(name) if label not in labelled)] = log
    return labelled


def _chosen(labelled: dict[str, Log], request: ImportRequest) -> dict[str, Log]:
    if unknown := [label for label in request.runs if label not in labelled]:
        examples = ", ".join(map(excerpt, list(labelled)[:5])) + (", ..." if len(labelled) > 5 else "")
        raise InvalidRequest(
            [FieldError("runs", f"the file has no run {excerpt(unknown[0])}, but {examples}")]
        )
    chosen = {label: log for label, log in labelled.items() if not request.runs or label in request.runs}
    alone = {"name": bool(request.name), "seed": request.seed is not None, "into": bool(request.into)}
    if len(chosen) > 1 and (wrong := [name for name, is_given in alone.items() if is_given]):
        reason = f"is for one run, and the file has {len(labelled)}: choose one of them with `runs`"
        raise InvalidRequest([FieldError(name, reason) for name in wrong])
    return chosen


def _planned(chosen: dict[str, Log], request: ImportRequest) -> dict[str, Plan]:
    """A plan for each run; of several, one without metrics is left out and named."""
    columns = {column for log in chosen.values() for column in log.table.columns}
    plans: dict[str, Plan] = {}
    left_out = []
    for label, log in chosen.items():
        own_columns = log.table.columns
        mapping = {
            name: ours for name, ours in request.mapping.items() if name in own_columns or name not in columns
        }
        step = (
            None
            if request.step and request.step not in own_columns and request.step in columns
            else request.step
        )
        try:
            plans[label] = plan_import(log, step=step, mapping=mapping)
        except BadLog as error:
            if len(chosen) == 1:
                raise
            left_out.append(f"The run {excerpt(label)} is left out: it {error}.")
    if not plans:
        raise BadLog(f"has no run with metrics; {left_out[0]}")
    next(iter(plans.values())).log.facts.notes += left_out
    return plans


def _store(
    sessions: Sessions, plans: list[Plan], request: ImportRequest, keys: list[str], digest: str
) -> tuple[list[Names], list[str | None]]:
    """Names and ids of the runs, made in one transaction: nobody else takes a name in between."""
    prepared = [prepare_run(plan) for plan in plans]
    with sessions.begin() as session:
        hold_experiment(session, _experiment(request))
        run_ids = [
            find_previous(session, key, digest) for key in keys
        ]  # the same request, quicker by a moment
        if None not in run_ids:
            return [names_of(session, run, request.file) for run in run_ids if run], run_ids
        names = _names(session, plans, request)
        for index, (plan, ready, key) in enumerate(zip(plans, prepared, keys, strict=True)):
            if run_ids[index] is None:
                run_ids[index] = store_run(session, plan, names[index], ready, key=key, digest=digest)
        return names, run_ids


def _add(sessions: Sessions, plans: list[Plan], request: ImportRequest) -> list[Names]:
    """Add the completions of the file to a run, whose names are returned."""
    completions = plans[0].log.completions
    if completions is None:
        raise InvalidRequest(
            [FieldError("file", f"{request.file} has no completions, which `into` adds to a run")]
        )
    with reading(sessions) as session:
        check_takes(session, request.into)
        names = names_of(session, request.into, request.file)
    if not request.dry_run:
        add_completions(sessions, request.into, completions, request.file)
    return [names]


def _content(plan: Plan) -> str:
    """Return what distinguishes the points of two logs."""
    digest = sha256()
    for name, series in plan.series.items():
        digest.update(name.encode() + series.steps.tobytes() + series.values.tobytes())
    return digest.hexdigest()


def _names(session: Session, plans: list[Plan], request: ImportRequest) -> list[Names]:
    """Return the names of the runs; two logs that the user does not name do not count as two seeds."""
    experiment = _experiment(request)
    query = select(Run.name, Run.variant).join(Experiment, Experiment.id == Run.experiment_id)
    rows = session.execute(query.where(Experiment.name == experiment)).all()
    taken, variants = {name for row in rows for name in row}, dict[str, str]()
    names_of_runs = []
    for plan in plans:
        facts, stem = plan.log.facts, clean_text(PurePath(request.file).stem)
        wanted_name = clean_text(facts.name) or stem
        name = request.name or next(
            candidate for candidate in _numbered(wanted_name[:MAX_NAME]) if candidate not in taken
        )
        variant = name
        if facts.variant is not None:  # seeds of one another, but not of runs that are there already
            shared = (clean_text(facts.variant) or stem)[:MAX_NAME]
            free = next(candidate for candidate in _numbered(shared) if candidate not in taken)
            variant = variants.setdefault(shared, free)
        taken.add(name)
        seed = request.seed if request.seed is not None else facts.seed
        seed = seed if seed is not None and 0 <= seed < 2**31 else 0
        names_of_runs.append(Names(name, experiment, request.variant or variant, seed, request.file))
    return names_of_runs


def _experiment(request: ImportRequest) -> str:
    return request.experiment or request.file


def _numbered(name: str) -> Iterator[str]:
    """The name, then the name with a number."""
    yield name
    yield from (f"{name} {number}" for number in count(2))
