"""The sender of webhooks: a thread that follows the events and stores its position in the database.

The position only moves after a response, so if the process is killed, the last event may be sent twice, but
none is lost. If the endpoint fails, delivery is retried later, and following events wait in order.
"""

import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence

from sqlalchemy import delete, func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from backend.base.redaction import redact
from backend.base.settings import Settings
from backend.base.text import clean_text
from backend.runs.events import add_event
from backend.runs.origin import ARCHIVE_ORIGIN
from backend.service.live.changes import events_after
from backend.service.maintenance.reconciler import take_lease
from backend.service.webhook.addresses import TIMEOUT_SECONDS, Target, Unreachable, resolve
from backend.service.webhook.messages import UNSIGNED, RunNames, choose_format, make_body, make_headers
from backend.service.webhook.post import post
from backend.storage.engine import Sessions, insert_into, open_read_session
from backend.storage.models import Event, Experiment, Run, Webhook

logger = logging.getLogger(__name__)

NAME = "webhook"
KINDS = ("diagnosis", "lifecycle")
LEVELS = ("info", "warning", "error")
LOOK_SECONDS = 1.0
LEASE_SECONDS = 30.0
PAGE_SIZE = 100
MAX_REASON = 500
"""Maximum number of characters of a stored failure reason."""

BACKOFF_SECONDS = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0, 28_800.0)
"""Delays between attempts to deliver an event, about a day in total; then the event is dropped with an error
event.
"""


class Sender:
    """Follows the events in a separate thread; does nothing if no webhook is configured."""

    def __init__(
        self, settings: Settings, sessions: Sessions, clock: Callable[[], float] = time.time
    ) -> None:
        self._settings, self._sessions, self._clock = settings, sessions, clock
        self._owner = uuid.uuid4().hex
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, even during a request, which is repeated later."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(1)

    def _run(self) -> None:
        is_forgotten = False
        while not self._stopping.wait(LOOK_SECONDS):
            try:
                if self._settings.grpolab_webhook_url:
                    while self.send_next() and not self._stopping.is_set():
                        pass
                elif not is_forgotten:
                    self._forget()
                    is_forgotten = True
            except SQLAlchemyError as error:
                logger.warning("the webhook waits: %s", str(error).splitlines()[0])
            except Exception:  # no event may end the thread
                logger.exception("the webhook failed")

    def send_next(self) -> bool:
        """Deliver the next due event or skip ignored ones; return whether to continue."""
        with open_read_session(self._sessions) as session:
            row = session.get(Webhook, NAME)
            if row is not None and not self._is_due(row):
                return False
            events = events_after(session, row.event_id, PAGE_SIZE) if row else []
            archived_runs = _archived_runs(session, events)
            event = next(
                (
                    candidate
                    for candidate in events
                    if self._is_wanted(candidate) and candidate.run_id not in archived_runs
                ),
                None,
            )
            run = _load_names(session, event.run_id) if event else None
        if row is not None and not events:
            return False
        with self._sessions.begin() as session:
            if not take_lease(session, NAME, self._owner, seconds=LEASE_SECONDS):
                return False
            if row is None:
                _load_position(session)
                return False
        event_id, failures, now = row.event_id, row.failures, self._clock()
        if event is None:
            self._settle(event_id, events[-1].id, is_delivered=False)
            return len(events) == PAGE_SIZE
        try:
            self._deliver(event, run, now)
        except Exception as error:  # noqa: BLE001 - an event that cannot be delivered must not block others
            self._fail(event_id, event, failures, error)
            return False
        self._settle(event_id, event.id, is_delivered=True)
        return True

    def _is_due(self, row: Webhook) -> bool:
        """Return whether the delay after a failure is over; it also is if the clock was set back."""
        remaining_seconds = row.try_after - self._clock()
        return not row.failures or not 0 < remaining_seconds <= max(BACKOFF_SECONDS)

    def _is_wanted(self, event: Event) -> bool:
        min_level = LEVELS.index(self._settings.grpolab_webhook_level)
        return event.kind in KINDS and event.level in LEVELS[min_level:]

    def _deliver(self, event: Event, run: RunNames | None, now: float) -> None:
        settings, deadline = self._settings, time.monotonic() + TIMEOUT_SECONDS
        event_format = choose_format(settings.grpolab_webhook_url, settings.grpolab_webhook_format)
        if event_format == "json" and not settings.grpolab_webhook_secret:
            raise Unreachable(UNSIGNED)
        body = make_body(event, run, event_format)
        headers = make_headers(event.id, body, settings.grpolab_webhook_secret, now)
        target = resolve_target(settings)
        post(target, body, headers, seconds=deadline - time.monotonic())

    def _settle(self, event_id: int, last_event_id: int, *, is_delivered: bool) -> None:
        with self._sessions.begin() as session:
            row = _load_position(session)
            if row.event_id == event_id:  # otherwise another process was faster
                row.event_id, row.failures, row.last_error = last_event_id, 0, ""
                row.delivered_at = self._clock() if is_delivered else row.delivered_at

    def _fail(self, event_id: int, event: Event, failures: int, error: Exception) -> None:
        is_known = isinstance(error, Unreachable)
        error_text = str(error) if is_known else f"{type(error).__name__}: {error}"
        reason = redact(clean_text(error_text))[:MAX_REASON]  # an endpoint may return any text
        trace = None if is_known else error
        logger.warning("the webhook of event %d failed: %s", event.id, reason, exc_info=trace)
        with self._sessions.begin() as session:
            row = _load_position(session)
            if row.event_id != event_id:
                return
            row.last_error = reason
            if failures < len(BACKOFF_SECONDS):
                row.failures, row.try_after = failures + 1, self._clock() + BACKOFF_SECONDS[failures]
                return
            row.event_id, row.failures = event.id, 0
            message = f"the webhook gave up event {event.id} after {failures + 1} tries: {reason}"
            add_event(session, NAME, message, run_id=event.run_id, level="error", data={"event": event.id})

    def _forget(self) -> None:
        """Delete the position, so that a webhook that is configured later starts with new events."""
        with self._sessions.begin() as session:
            session.execute(delete(Webhook))


def resolve_target(settings: Settings) -> Target:
    """Return the resolved and checked address of the webhook; raise Unreachable."""
    return resolve(settings.grpolab_webhook_url, private=settings.grpolab_webhook_private)


def _archived_runs(session: Session, events: Sequence[Event]) -> set[str]:
    """Return the ids of runs imported from archives, whose events are not delivered."""
    runs = {event.run_id for event in events if event.run_id}
    query = select(Run.id).where(Run.id.in_(runs), Run.origin == ARCHIVE_ORIGIN)
    return set(session.scalars(query)) if runs else set()


def _load_position(session: Session) -> Webhook:
    """Return the stored position; a new one starts after the newest event."""
    newest = session.scalar(select(func.max(Event.id))) or 0
    initial_values = {"name": NAME, "event_id": newest, "failures": 0, "try_after": 0.0, "last_error": ""}
    session.execute(insert_into(session, Webhook).values(**initial_values).on_conflict_do_nothing())
    return session.get_one(Webhook, NAME, with_for_update=True)


def _load_names(session: Session, run_id: str | None) -> RunNames | None:
    columns = (Run.id, Run.name, Experiment.name, Run.variant, Run.seed, Run.status, Run.verdict)
    query = select(*columns).join_from(Run, Experiment, Run.experiment_id == Experiment.id, isouter=True)
    row = session.execute(query.where(Run.id == run_id)).one_or_none()
    if row is None:
        return None
    run, name, experiment, variant, seed, status, verdict = row
    return RunNames(run, name, experiment or "", variant, seed, status, verdict)
