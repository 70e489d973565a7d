"""Pushed records in SQL, stored in one transaction with the number of the last one.

A batch that is sent again, for example because its answer was lost, changes nothing.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import exists, func, or_, select, update
from sqlalchemy.orm import Session

from backend.base.errors import Conflict, FieldError, Gone, InvalidRequest, NotFound
from backend.base.text import clean_text
from backend.exchange.imports.guess import TIME_COLUMNS, is_step_name
from backend.exchange.imports.names import metric_name
from backend.exchange.imports.plan import MAX_METRICS
from backend.exchange.imports.store import Names, find_or_create_experiment, storable_config, variant_hash
from backend.exchange.push.schemas import (
    PROCESS_DIGITS,
    Batch,
    Completion,
    CompletionsRecord,
    FinishRecord,
    MetricsRecord,
    PushResponse,
    RunHead,
)
from backend.metrics.store import write_points
from backend.metrics.summary import Summary
from backend.rollouts.foreign import ATTEMPT, pack_foreign, replace_groups
from backend.rollouts.foreign_metrics import Points, compute_text_points, is_cut, refresh_points
from backend.rollouts.records import CompletionRecord, make_foreign_group
from backend.rollouts.store import PackedGroups
from backend.rollouts.text_metrics import WrittenCompletion
from backend.runs.events import add_event
from backend.runs.origin import ORIGIN_TITLES
from backend.runs.pushed import SILENT_SECONDS, continue_pushed, end_pushed
from backend.storage.engine import Sessions, db_now, insert_into, new_id, open_read_session
from backend.storage.models import Attempt, Metric, MetricBlock, MetricKey, PushSession, Run
from backend.storage.sort_values import sort_values

MAX_RUNS = 10_000
"""Maximum number of runs of a writer, including the trash, so that a leaked token cannot fill the database.
"""


class Owner(NamedTuple):
    """Identity of a run: the writer whose token pushes it, and the id that its client chose."""

    writer: str
    key: str


def push(sessions: Sessions, owner: Owner, batch: Batch) -> PushResponse:
    """Store the new records of a batch, and create the run if it does not exist.

    Raises NotFound if the run and its head are missing, Conflict if previous records are missing, Gone for a
    run in the trash, and InvalidRequest for too many metrics or runs. Then nothing of the batch is stored.
    """
    description = _clean_head(batch.run) if batch.run is not None else None
    with sessions.begin() as session:
        run = _find_run(session, owner, locks=True) or _make(session, owner, description)
        run_id, stored_count = run.id, _open_session(session, run, batch)
    new_records = list(enumerate(batch.records, batch.first))[max(0, stored_count + 1 - batch.first) :]
    packed_groups = {
        number: _pack(run_id, record)
        for number, record in new_records
        if isinstance(record, CompletionsRecord)
    }
    values = {
        number: metrics_by_name(record.values)
        for number, record in new_records
        if isinstance(record, MetricsRecord)
    }
    _check_number({name for values_of_record in values.values() for name in values_of_record})
    completions_by_step = _collect_completions(record for _, record in new_records)
    with open_read_session(sessions) as session:
        texts = compute_text_points(session, run_id, completions_by_step)
    with sessions.begin() as session:
        run_now = _find_run(session, owner, locks=True)
        if run_now is None or run_now.id != run_id:
            raise Conflict("the run was just deleted: send it again")
        stored_count = _check_stored_count(
            session, run_now, batch
        )  # another request may have stored the same records
        remaining_records = [(number, record) for number, record in new_records if number > stored_count]
        process_place = _process_place(session, run_now, batch.session)
        _store(
            session,
            run_now,
            process_place,
            remaining_records,
            packed_groups,
            values,
            refresh_points(session, run_id, completions_by_step, texts),
        )
        last = max(stored_count, batch.first + len(batch.records) - 1)
        session_update = update(PushSession).where(
            PushSession.run_id == run_id, PushSession.id == batch.session
        )
        session.execute(session_update.values(stored=last, heard_at=db_now()))
        session.refresh(run_now)
        return _answer(run_now, last)


def _find_run(session: Session, owner: Owner, *, locks: bool = False) -> Run | None:
    """Return the run that this writer pushes under this key; runs of other writers are never found.

    Raises Gone if the run is in the trash or was just deleted.
    """
    query = select(Run).where(Run.writer == owner.writer, Run.writer_key == owner.key)
    run = session.scalars(
        query.with_for_update() if locks else query, execution_options={"populate_existing": True}
    ).one_or_none()
    if run is not None and run.deleting_at is not None:
        raise Gone("this run was deleted permanently")
    if run is not None and run.deleted_at is not None:
        raise Gone("this run is in the trash: restore it before you push to it")
    return run


def read_push_state(session: Session, owner: Owner) -> PushResponse:
    """Return the state of a run; raise NotFound, or Gone for a run in the trash."""
    run = _find_run(session, owner)
    if run is None:
        raise _no_run(owner)
    return _answer(run, 0)


def _answer(run: Run, stored_count: int) -> PushResponse:
    wants_stop = run.requested_action == "stop" or run.status == "stopped"
    return PushResponse(run=run.id, status=run.status, stop=wants_stop, stored=stored_count)


def _no_run(owner: Owner) -> NotFound:
    return NotFound(
        f"this token has no run with the id {owner.key!r}: send `run`, its name and config, with it"
    )


class NewRun(NamedTuple):
    """Values of a new run; its config has a limited size."""

    head: RunHead
    names: Names
    config: dict[str, Any]
    left_out: str
    """Reason why there is no config."""


def _clean_head(head: RunHead) -> NewRun:
    name, experiment, variant = map(clean_text, (head.name, head.experiment, head.variant))
    return NewRun(
        head, Names(name, experiment, variant or name, head.seed, ""), *storable_config(head.config)
    )


def _make(session: Session, owner: Owner, description: NewRun | None) -> Run:
    if description is None:
        raise _no_run(owner)
    _check_quota(session, owner.writer)
    head, names, config, left_out = description
    trial = session.begin_nested()
    experiment_id = find_or_create_experiment(session, names)
    row = {
        "id": new_id(),
        "name": names.run,
        "experiment_id": experiment_id,
        "variant": names.variant,
        "seed": names.seed,
        "config": config,
        "config_hash": variant_hash(experiment_id, names.variant),
        "steps": max(1, head.steps),
        "status": "running",
        "attempt": ATTEMPT,
        "origin": head.origin,
        "writer": owner.writer,
        "writer_key": owner.key,
        "started_at": db_now(),
        "progress_at": db_now(),
    }
    run_id = session.scalar(
        insert_into(session, Run).values(**row).on_conflict_do_nothing().returning(Run.id)
    )
    if run_id is None:  # another process of this run was faster
        trial.rollback()
        if (run := _find_run(session, owner, locks=True)) is not None:
            return run
        raise Conflict(f"the run {owner.key!r} was just deleted: send it again")
    trial.commit()
    session.add(Attempt(run_id=run_id, number=ATTEMPT, from_step=-1, worker_id="", host=""))
    message = f"pushed by {ORIGIN_TITLES[head.origin]}" + (f", writer {owner.writer}" if owner.writer else "")
    add_event(session, "lifecycle", message, run_id=run_id, attempt=ATTEMPT, data={"to": "running"})
    if left_out:
        add_event(session, "data", left_out, run_id=run_id, attempt=ATTEMPT, level="warning")
    session.flush()
    return session.get_one(Run, run_id)


def _check_quota(session: Session, writer: str) -> None:
    """Raise InvalidRequest if a writer has reached its limit of runs; the operator has no such limit."""
    count = select(func.count()).select_from(Run).where(Run.writer == writer)
    if writer and (session.scalar(count) or 0) >= MAX_RUNS:
        reason = (
            f"the writer {writer} has {MAX_RUNS:,} runs, as many as it may: ask the operator to delete some"
        )
        raise InvalidRequest([FieldError("run", reason)])


def _open_session(session: Session, run: Run, batch: Batch) -> int:
    """Return the number of the last stored record. A new session continues a run that has ended."""
    number = select(func.coalesce(func.max(PushSession.number), 0) + 1).where(PushSession.run_id == run.id)
    values = {"run_id": run.id, "id": batch.session, "stored": 0, "number": number.scalar_subquery()}
    row = insert_into(session, PushSession).values(**values)
    is_new = session.scalar(row.on_conflict_do_nothing().returning(PushSession.id)) is not None
    stored_count = _check_stored_count(session, run, batch)
    if is_new and run.status != "running":
        continue_pushed(session, run)
    return stored_count


def _check_stored_count(session: Session, run: Run, batch: Batch) -> int:
    query = select(PushSession.stored).where(PushSession.run_id == run.id, PushSession.id == batch.session)
    stored_count: int = session.scalar(query) or 0
    if batch.first > stored_count + 1:
        raise Conflict(f"records {stored_count + 1:,} to {batch.first - 1:,} are missing: send them first")
    return stored_count


class ProcessPlace(NamedTuple):
    """A process among those that have pushed to a run; its forks are part of it."""

    is_newest: bool
    """Whether no other process began to push after it. Values of a newer process, even at earlier steps,
    count.
    """
    is_replaced: bool
    """Whether a newer process was active when this one stopped sending: then the run ends with the newer one.
    """


def _process_place(session: Session, run: Run, push_session: str) -> ProcessPlace:
    """Return the place of the process that pushes, before this batch is counted.

    A process begins when the service first receives one of its sessions.
    """
    columns = (PushSession.id, PushSession.number, PushSession.heard_at)
    first_number_by_process: dict[str, int] = {}
    last_heard_by_process: dict[str, float] = {}
    for name, number, heard_at in session.execute(select(*columns).where(PushSession.run_id == run.id)):
        process = name[:PROCESS_DIGITS]
        first_number_by_process[process] = min(number, first_number_by_process.get(process, number))
        last_heard_by_process[process] = max(heard_at, last_heard_by_process.get(process, heard_at))
    own_process = push_session[:PROCESS_DIGITS]
    newer_processes = [
        process
        for process, number in first_number_by_process.items()
        if number > first_number_by_process[own_process]
    ]
    return ProcessPlace(
        not newer_processes,
        any(
            last_heard_by_process[process] >= last_heard_by_process[own_process] - SILENT_SECONDS
            for process in newer_processes
        ),
    )


def _store(
    session: Session,
    run: Run,
    process_place: ProcessPlace,
    records: Sequence[tuple[int, Any]],
    packed_groups: Mapping[int, PackedGroups],
    values: Mapping[int, Mapping[str, float]],
    texts: Points,
) -> None:
    summary, last_step = Summary.read(run.summary), run.last_step
    add_record = summary.add_step if process_place.is_newest else summary.add
    points: list[tuple[int, Mapping[str, float]]] = [*texts] if records else []
    for step, metrics in points:
        summary.add(step, metrics)
    for number, record in records:
        if isinstance(record, MetricsRecord):
            add_record(record.step, values[number])
            points.append((record.step, values[number]))
        elif isinstance(record, CompletionsRecord):
            replace_groups(session, packed_groups[number])
        last_step = max(last_step, getattr(record, "step", 0))
    _check_stored(
        session, run, summary.document()["last"].keys(), {name for _, metrics in points for name in metrics}
    )
    write_points(session, run.id, ATTEMPT, points)
    changed_fields: dict[str, Any] = {
        "summary": (document := summary.document()),
        **sort_values(document),
        "last_step": last_step,
        "steps": max(run.steps, last_step),
    }
    if any(step <= (run.judged_step or -1) for step, _ in points):
        changed_fields["judged_step"] = None  # the verdict is based on values that no longer exist
    session.execute(update(Run).where(Run.id == run.id).values(progress_at=db_now(), **changed_fields))
    session.refresh(run)
    for _, record in records:
        if isinstance(record, FinishRecord) and not process_place.is_replaced:
            end_pushed(session, run, record.status, record.reason)


def _check_number(names: Collection[str]) -> None:
    if (count := len(names)) > MAX_METRICS:
        reason = f"the run would have {count:,} metrics; at most {MAX_METRICS:,} are stored"
        raise InvalidRequest([FieldError("records", reason)])


def _check_stored(session: Session, run: Run, last: Collection[str], names: Collection[str]) -> None:
    """Check the number of metrics; ends of intervals are stored but not part of the summary."""
    if all(name in run.summary["last"] for name in names):
        return
    interval_ends = [MetricKey.name.like(f"eval/%{end}", escape="\\") for end in ("\\_low", "\\_high")]
    is_stored = [
        exists().where(table.run_id == run.id, table.key_id == MetricKey.id)
        for table in (Metric, MetricBlock)
    ]
    stored_names = session.scalars(select(MetricKey.name).where(or_(*interval_ends), or_(*is_stored)))
    _check_number({*stored_names, *last, *names})


def metrics_by_name(values: Mapping[str, float]) -> dict[str, float]:
    """Return the values under the names of this service, as an import would; step counts and times are left
    out.
    """
    by_name: dict[str, float] = {}
    for label, value in values.items():
        if label.strip() and not is_step_name(label) and label not in TIME_COLUMNS:
            name, _ = metric_name(label, by_name)
            by_name.setdefault(name, value)
    return by_name


def _collect_completions(records: Iterable[Any]) -> dict[int, dict[int, list[WrittenCompletion]]]:
    """Return the texts of the training completions among some records, by step and position."""
    written_by_step: dict[int, dict[int, list[WrittenCompletion]]] = defaultdict(dict)
    for record in records:
        if isinstance(record, CompletionsRecord) and record.split == "train":
            written_by_step[record.step][record.index] = [
                WrittenCompletion(record.prompt, completion.text, is_cut(completion.finish_reason))
                for completion in record.completions
            ]
    return written_by_step


def _pack(run_id: str, record: CompletionsRecord) -> PackedGroups:
    group = make_foreign_group(
        kind=record.split,
        prompt_index=record.index,
        prompt=record.prompt,
        answer=record.answer,
        completions=[_completion(completion) for completion in record.completions],
    )
    return pack_foreign(run_id, record.step, [group])


def _completion(completion: Completion) -> CompletionRecord:
    return CompletionRecord(
        text=completion.text,
        reward=completion.reward,
        rewards={clean_text(name): value for name, value in completion.rewards.items()},
        advantage=completion.advantage,
        finish_reason=completion.finish_reason,
        correct=completion.correct,
        token_ids=range(completion.tokens or 0),
    )
