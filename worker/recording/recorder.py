"""The recorder, which passes each step to a writer thread that stores it in SQL while training continues.

Every transaction begins with a check that this attempt still owns the run. The same statement records
progress, renews the lease, stores the summary and reads the user's request. Writing the same step twice
changes nothing, so a transaction with unknown outcome is repeated.
"""

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from backend.base.errors import Fenced
from backend.base.redaction import redact_document
from backend.config.run import RunConfig
from backend.metrics.history import valid_steps
from backend.metrics.store import write_points
from backend.metrics.summary import Summary
from backend.rollouts.records import GroupRecord
from backend.rollouts.store import PackedGroups, pack_groups, write_groups
from backend.runs import leases, lifecycle
from backend.runs.check_report import CheckReport
from backend.runs.checkpoints import keep_before
from backend.runs.events import add_event
from backend.storage.engine import Sessions, db_now, open_read_session
from backend.storage.models import Run
from backend.storage.sort_values import sort_values
from worker.db_retry import left_for_later, retry_query, retry_transaction
from worker.recording.outage_note import Backlog, Outage
from worker.recording.records import EventRecord, LifeRecord, StepRecord, VerdictRecord
from worker.recording.selection import recording_mode, select_groups
from worker.recording.write_queue import WriteQueue

BATCH_SECONDS = 0.2
"""Seconds between commits of fast steps, which are committed together."""

SWITCH_SECONDS = 0.0005
"""Seconds for which the writer may hold the interpreter while the training thread waits, outside a lull.
With Python's default of 5 ms, training would pause for nearly the whole time that the writer works.
"""

BYTES_PER_TOKEN = 100
"""Memory of a queued token in bytes, without its id and values: a string and its position in the text."""

LIFE_SECONDS = 30.0
"""Seconds between two signs of life within a step, far below the hang detector's shortest limit."""

Result = TypeVar("Result")

Record = StepRecord | EventRecord | VerdictRecord | LifeRecord


class Recorder:
    """Writes a run's data to SQL. Use it as a context manager, which writes queued data on exit."""

    def __init__(
        self,
        sessions: Sessions,
        run_id: str,
        attempt: int,
        *,
        config: RunConfig,
        lease_seconds: float = 60.0,
        note: Path | None = None,
    ) -> None:
        """Create the recorder. The file `note` informs the service about queued steps."""
        self.run_id = run_id
        self.requested_action = ""
        """Last request of the user that was seen: "", "stop" or "pause"."""
        self._sessions = sessions
        self._attempt = attempt
        self._config = config
        self._mode = recording_mode(config)
        self._lease_seconds = lease_seconds
        self._summary = Summary()
        self._paid = 0.0
        self._queue: WriteQueue[Record] = WriteQueue()
        self._shown_at = time.monotonic()
        self._steps_put = 0  # steps counted by the training thread, and by the writer thread
        self._steps_written = 0
        self._outage = Outage(note, run_id, self._backlog)
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def __enter__(self) -> Self:
        sys.setswitchinterval(SWITCH_SECONDS)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._queue.close()
        self._thread.join()
        self._outage.end()
        if kind is not None and self._paid:  # part of the cost may belong to an unfinished step
            with left_for_later("store what judges cost"), self._sessions.begin() as session:
                self._guard(session, {})
        if kind is None:
            self._queue.flush()

    def begin(self, from_step: int) -> None:
        """Continue after `from_step`, or from the start if it is -1, and hide later rows of older attempts.

        The summary is reset to its state at that step.
        """
        self._summary = self.read(lambda session: self._load_summary(session, from_step))
        self._persist(lambda session: self._begin(session, from_step))

    def record_step(self, record: StepRecord) -> None:
        """Queue a step. This blocks only if the database has been unavailable for very long."""
        self._queue.put(record, _record_bytes(record.groups))
        self._steps_put += 1

    def event(
        self,
        kind: str,
        level: str,
        message: str,
        data: Mapping[str, Any] | None = None,
        *,
        step: int | None = None,
    ) -> None:
        """Queue a line for the run's history."""
        self._queue.put(EventRecord(kind, level, message, step, data or {}), 0)

    def verdict(self, record: VerdictRecord) -> None:
        """Queue the diagnosis of the steps so far."""
        self._queue.put(record, 0)

    def pay(self, amount: float) -> None:
        """Add to the judge costs of this attempt, which are stored with the next record."""
        self._paid += amount

    def show_life(self) -> None:
        """Show progress during a long evaluation, so that it does not count as a hang. It may be called
        often.
        """
        if time.monotonic() - self._shown_at >= LIFE_SECONDS:
            self._shown_at = time.monotonic()
            self._queue.put(LifeRecord(), 0)

    def allow_writes(self) -> AbstractContextManager[None]:
        """Return a context manager for computations outside the interpreter, during which the writer
        works.
        """
        return self._queue.allow_writes()

    def flush(self) -> None:
        """Wait until all queued data is committed."""
        self._queue.flush()

    def commit(self, write: Callable[[Session], None]) -> None:
        """Write queued data, then call `write` in a separate transaction if this attempt still owns the run.

        `write` may be called again after a connection loss, so it must be idempotent.
        """
        self.flush()

        def guarded(session: Session) -> None:
            self._guard(session, {})
            write(session)

        self._persist(guarded)

    def store_check(self, report: CheckReport) -> None:
        """Store the report of a launch check with the run."""
        document = redact_document(report.model_dump(mode="json"))

        def write(session: Session) -> None:
            session.execute(update(Run).where(Run.id == self.run_id).values(check_report=document))

        self.commit(write)

    def read(self, query: Callable[[Session], Result]) -> Result:
        """Return the result of a query, with retries until the database is available."""
        result = retry_query(self._sessions, query, report_waiting=self._outage.wait)
        self._outage.end()
        return result

    def _backlog(self) -> Backlog:
        return Backlog(self._steps_put - self._steps_written, self._queue.is_holding)

    def _persist(self, transact: Callable[[Session], None]) -> None:
        """Run a transaction with retries until it succeeds. A long wait is recorded in the run's history."""
        retry_transaction(self._sessions, transact, report_waiting=self._outage.wait)
        if outage_text := self._outage.end():
            line = EventRecord("database", "warning", f"{outage_text}; nothing was lost", None, {})
            with left_for_later("note the wait"), self._sessions.begin() as session:
                self._guard(session, {})
                self._add_events(session, [line])

    def _run(self) -> None:
        try:
            self._write_all()
        except BaseException as error:  # noqa: BLE001 - re-raised in the training thread
            self._queue.fail(error)

    def _write_all(self) -> None:
        next_commit = 0.0
        while (batch := self._queue.take(next_commit)) is not None:
            next_commit = time.monotonic() + BATCH_SECONDS
            if batch:
                self._persist(self._prepare(batch))
                self._steps_written += sum(isinstance(item, StepRecord) for item in batch)
                self._queue.mark_written(len(batch))
            else:
                with left_for_later("look for a request"):
                    self._look_for_request()

    def _prepare(self, batch: list[Record]) -> Callable[[Session], None]:
        """Return the transaction that stores a batch. Its content is fixed here, so it can be repeated."""
        steps = [item for item in batch if isinstance(item, StepRecord)]
        events = [item for item in batch if isinstance(item, EventRecord)]
        verdicts = [item for item in batch if isinstance(item, VerdictRecord)]
        for record in steps:
            self._summary.add_step(record.step, record.metrics)
        stored_groups = [self._select_groups(record) for record in steps]
        points = [
            (record.step, {**record.metrics, **_unstored_loss(record, stored)})
            for record, stored in zip(steps, stored_groups, strict=True)
        ]
        groups = [
            self._pack_groups(record, stored) for record, stored in zip(steps, stored_groups, strict=True)
        ]
        progress = _progress(steps[-1].step, self._summary.document()) if steps else {}
        if not steps and any(isinstance(item, LifeRecord) for item in batch):
            progress = {"progress_at": db_now()}
        columns = progress | (dict(verdicts[-1].columns) if verdicts else {})

        def write(session: Session) -> None:
            self._guard(session, columns)
            write_points(session, self.run_id, self._attempt, points)
            for packed in groups:
                write_groups(session, packed)
            for verdict in verdicts:
                for kind, onset in verdict.onsets.items():
                    keep_before(session, self.run_id, kind, healthy_step=onset.healthy, sick_step=onset.sick)
            self._add_events(session, events)

        return write

    def _select_groups(self, record: StepRecord) -> list[GroupRecord]:
        """Return the groups of a step that will be stored."""
        indices = select_groups(
            record.groups,
            mode=self._mode,
            step=record.step,
            last_step=self._config.steps,
            is_alarmed=record.is_alarmed,
            seed=self._config.seed,
        )
        return [record.groups[n] for n in indices]

    def _pack_groups(self, record: StepRecord, stored_groups: Sequence[GroupRecord]) -> PackedGroups:
        stored_ids = {id(group) for group in stored_groups}
        return pack_groups(
            self.run_id,
            record.step,
            self._attempt,
            stored_groups,
            counted_groups=[group for group in record.groups if id(group) not in stored_ids],
            with_tokens=self._config.recording.tokens,
        )

    def _add_events(self, session: Session, events: Sequence[EventRecord]) -> None:
        for event in events:
            add_event(
                session,
                event.kind,
                event.message,
                run_id=self.run_id,
                attempt=self._attempt,
                level=event.level,
                step=event.step,
                data=event.data,
            )

    def _guard(self, session: Session, column_values: Mapping[str, Any]) -> None:
        """Check ownership and renew the lease as the first statement of a transaction. Raise Fenced."""
        values = dict(column_values) or {"changed_at": Run.changed_at}
        lease_until = db_now() + self._lease_seconds
        self.requested_action = leases.fence(
            session, self.run_id, self._attempt, lease_until=lease_until, **values
        )
        if self._paid:  # This is the total so far, so storing it twice changes nothing.
            lifecycle.note_attempt(session, self.run_id, self._attempt, judge_cost=self._paid)

    def _load_summary(self, session: Session, step: int) -> Summary:
        summary = Summary()
        for number, metrics in valid_steps(session, self.run_id, up_to=step):
            summary.add_step(number, metrics)
        return summary

    def _begin(self, session: Session, from_step: int) -> None:
        lifecycle.begin_attempt(session, self.run_id, self._attempt, from_step)
        self._guard(session, _progress(max(from_step, 0), self._summary.document()))

    def _look_for_request(self) -> None:
        """Read the user's request between steps, and check that this attempt still owns the run."""
        query = select(Run.requested_action).where(
            Run.id == self.run_id, Run.attempt == self._attempt, Run.status == "running"
        )
        with open_read_session(self._sessions) as session:
            requested_action = session.scalar(query)
        if requested_action is None:
            raise Fenced(self.run_id, self._attempt)
        self.requested_action = requested_action


def _unstored_loss(record: StepRecord, stored_groups: Sequence[GroupRecord]) -> dict[str, float]:
    """Return loss/unstored, the part of the step's loss in groups that are not stored, if there are any."""
    if len(stored_groups) == len(record.groups) or "loss/total" not in record.metrics:
        return {}
    stored_ids = {id(group) for group in stored_groups}
    unstored_groups = [group for group in record.groups if id(group) not in stored_ids]
    return {
        "loss/unstored": sum(completion.loss for group in unstored_groups for completion in group.completions)
    }


def _progress(step: int, summary: dict[str, Any]) -> dict[str, Any]:
    return {"last_step": step, "summary": summary, **sort_values(summary), "progress_at": db_now()}


def _record_bytes(groups: Sequence[GroupRecord]) -> int:
    """Return the memory of a queued step. Its arrays have the width of the longest completion."""
    completions = [completion for group in groups for completion in group.completions]
    lengths = [len(completion.token_ids) for completion in completions]
    arrays = max((len(completion.arrays) for completion in completions), default=0)
    padded_tokens = len(lengths) * max(lengths, default=0)
    return 4_000 + BYTES_PER_TOKEN * sum(lengths) + (8 + 4 * arrays) * padded_tokens
