"""Import a log: read the file, plan the import, choose names, and store the runs."""

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
from backend.exchange.imports.additions import add_completions, check_takes, read_run_names
from backend.exchange.imports.formats import FORMATS, read_logs
from backend.exchange.imports.log import Log
from backend.exchange.imports.plan import Plan, plan_import
from backend.exchange.imports.schemas import ImportResponse, RunItemOfImport, build_report
from backend.exchange.imports.store import Names, lock_experiment, prepare_run, store_run
from backend.exchange.imports.table import BadLog, excerpt
from backend.http.idempotency import find_previous, request_digest
from backend.storage.engine import Sessions, open_read_session
from backend.storage.models import Experiment, Run

MAX_NAME = 180
"""Maximum length of a name from the log, to which a number may be appended."""

_one_at_a_time = threading.Lock()
"""Lock for reading logs, one at a time because it needs a complete processor and much memory."""


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """A request to import a log; everything except the file name can be detected automatically."""

    file: str
    """Name of the file, which is only a label and never used as a path."""
    format: str = ""
    name: str = ""
    experiment: str = ""
    variant: str = ""
    seed: int | None = None
    step: str | None = None
    """Column of steps, or ROW_NUMBER; None if it is to be guessed."""
    mapping: Mapping[str, str] = field(default_factory=dict)
    runs: Sequence[str] = ()
    """Labels of the runs in the file to import; empty for all of them."""
    into: str = ""
    """Id of an imported run to which the file's completions are added; empty to create runs."""
    dry_run: bool = False


def import_log(
    sessions: Sessions, file: IO[bytes], request: ImportRequest, *, key: str = ""
) -> ImportResponse:
    """Create the runs of a log, or with `dry_run` only a report.

    Raise InvalidRequest for a file that cannot be imported, in which case nothing is stored.
    """
    format_name, logs_by_label, plans = _plans(file, request)
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
        with open_read_session(sessions) as session:
            run_ids = [] if request.dry_run else [find_previous(session, run_key, digest) for run_key in keys]
            if run_ids and None not in run_ids:
                names = [read_run_names(session, run, request.file) for run in run_ids if run]
            elif request.dry_run:
                names = _names(session, list(plans.values()), request)
        if not request.dry_run and None in run_ids:
            names, run_ids = _store(sessions, list(plans.values()), request, keys, digest)
    ids = dict(zip(plans, run_ids, strict=False)) if not request.dry_run else {}
    first = next(iter(plans.values()))
    names_by_label = dict(zip(plans, names, strict=False))
    return ImportResponse(
        run=next(iter(ids.values()), None),
        name=names[0].run,
        experiment=names[0].experiment,
        variant=names[0].variant,
        seed=names[0].seed,
        runs=[
            _item(label, log, names_by_label.get(label), ids.get(label))
            for label, log in logs_by_label.items()
        ],
        report=build_report(first, format_name),
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
    """Return the format, all runs of the file by label, and the plans of the selected runs."""
    if request.format and request.format not in FORMATS:
        reason = f"is {request.format!r:.40}; expected one of {', '.join(FORMATS)}"
        raise InvalidRequest([FieldError("format", reason)])
    try:
        with _one_at_a_time:
            format_name, logs = read_logs(file, request.file, request.format or None)
            logs_by_label = _label_runs(logs, request.file)
            return format_name, logs_by_label, _plan_runs(_choose_logs(logs_by_label, request), request)
    except BadLog as error:
        raise InvalidRequest([FieldError("file", f"{request.file} {error}")]) from None
    except Unusable as error:
        raise Unavailable(
            f"binary logs are read in the sandbox, which does not start here: {error}"
        ) from None


def _label_runs(logs: list[Log], file: str) -> dict[str, Log]:
    """Return the runs of a file by unique labels."""
    logs_by_label: dict[str, Log] = {}
    for log in logs:
        name = clean_text(log.metadata.name)[:MAX_NAME] or clean_text(PurePath(file).stem)
        logs_by_label[next(label for label in _number_names(name) if label not in logs_by_label)] = log
    return logs_by_label


def _choose_logs(log_by_label: dict[str, Log], request: ImportRequest) -> dict[str, Log]:
    if unknown_labels := [label for label in request.runs if label not in log_by_label]:
        examples = ", ".join(map(excerpt, list(log_by_label)[:5])) + (
            ", ..." if len(log_by_label) > 5 else ""
        )
        raise InvalidRequest(
            [FieldError("runs", f"the file has no run {excerpt(unknown_labels[0])}, but {examples}")]
        )
    chosen_logs = {
        label: log for label, log in log_by_label.items() if not request.runs or label in request.runs
    }
    single_run_options = {
        "name": bool(request.name),
        "seed": request.seed is not None,
        "into": bool(request.into),
    }
    if len(chosen_logs) > 1 and (
        invalid_options := [name for name, is_given in single_run_options.items() if is_given]
    ):
        reason = f"is for one run, and the file has {len(log_by_label)}: choose one of them with `runs`"
        raise InvalidRequest([FieldError(name, reason) for name in invalid_options])
    return chosen_logs


def _plan_runs(chosen_logs: dict[str, Log], request: ImportRequest) -> dict[str, Plan]:
    """Return a plan for each run; if there are several, runs without metrics are left out and reported."""
    columns = {column for log in chosen_logs.values() for column in log.table.columns}
    plans: dict[str, Plan] = {}
    left_out = []
    for label, log in chosen_logs.items():
        own_columns = log.table.columns
        mapping = {
            name: metric
            for name, metric in request.mapping.items()
            if name in own_columns or name not in columns
        }
        step = (
            None
            if request.step and request.step not in own_columns and request.step in columns
            else request.step
        )
        try:
            plans[label] = plan_import(log, step=step, mapping=mapping)
        except BadLog as error:
            if len(chosen_logs) == 1:
                raise
            left_out.append(f"The run {excerpt(label)} is left out: it {error}.")
    if not plans:
        raise BadLog(f"has no run with metrics; {left_out[0]}")
    next(iter(plans.values())).log.metadata.notes += left_out
    return plans


def _store(
    sessions: Sessions, plans: list[Plan], request: ImportRequest, keys: list[str], digest: str
) -> tuple[list[Names], list[str | None]]:
    """Return names and ids of the runs, created in one transaction so that no name is taken meanwhile."""
    prepared_runs = [prepare_run(plan) for plan in plans]
    with sessions.begin() as session:
        lock_experiment(session, _experiment(request))
        run_ids = [
            find_previous(session, key, digest) for key in keys
        ]  # a concurrent equal request was faster
        if None not in run_ids:
            return [read_run_names(session, run, request.file) for run in run_ids if run], run_ids
        names = _names(session, plans, request)
        for index, (plan, prepared_run, key) in enumerate(zip(plans, prepared_runs, keys, strict=True)):
            if run_ids[index] is None:
                run_ids[index] = store_run(session, plan, names[index], prepared_run, key=key, digest=digest)
        return names, run_ids


def _add(sessions: Sessions, plans: list[Plan], request: ImportRequest) -> list[Names]:
    """Add the completions of the file to a run and return its names."""
    completions = plans[0].log.completions
    if completions is None:
        raise InvalidRequest(
            [FieldError("file", f"{request.file} has no completions, which `into` adds to a run")]
        )
    with open_read_session(sessions) as session:
        check_takes(session, request.into)
        names = read_run_names(session, request.into, request.file)
    if not request.dry_run:
        add_completions(sessions, request.into, completions, request.file)
    return [names]


def _content(plan: Plan) -> str:
    """Return a digest of the points of a log."""
    digest = sha256()
    for name, series in plan.series.items():
        digest.update(name.encode() + series.steps.tobytes() + series.values.tobytes())
    return digest.hexdigest()


def _names(session: Session, plans: list[Plan], request: ImportRequest) -> list[Names]:
    """Return names for the runs; two logs without user-defined names do not count as two seeds."""
    experiment = _experiment(request)
    query = select(Run.name, Run.variant).join(Experiment, Experiment.id == Run.experiment_id)
    rows = session.execute(query.where(Experiment.name == experiment)).all()
    used_names, variants = {name for row in rows for name in row}, dict[str, str]()
    names_of_runs = []
    for plan in plans:
        metadata, stem = plan.log.metadata, clean_text(PurePath(request.file).stem)
        preferred_name = clean_text(metadata.name) or stem
        name = request.name or next(
            candidate for candidate in _number_names(preferred_name[:MAX_NAME]) if candidate not in used_names
        )
        variant = name
        if metadata.variant is not None:  # seeds of one another, but not of existing runs
            shared_name = (clean_text(metadata.variant) or stem)[:MAX_NAME]
            unused_name = next(
                candidate for candidate in _number_names(shared_name) if candidate not in used_names
            )
            variant = variants.setdefault(shared_name, unused_name)
        used_names.add(name)
        seed = request.seed if request.seed is not None else metadata.seed
        seed = seed if seed is not None and 0 <= seed < 2**31 else 0
        names_of_runs.append(Names(name, experiment, request.variant or variant, seed, request.file))
    return names_of_runs


def _experiment(request: ImportRequest) -> str:
    return request.experiment or request.file


def _number_names(name: str) -> Iterator[str]:
    """Yield the name, and then the name with increasing numbers."""
    yield name
    yield from (f"{name} {number}" for number in count(2))
