"""The sender of webhooks: one thread that follows the events and remembers in SQL how far it has come.

A position is moved only after an answer, so a process that dies sends its last event again and loses none. An
endpoint that fails is tried again later; meanwhile its events wait in order, and nothing else waits for it.
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
from backend.runs.origin import ARCHIVED
from backend.service.live.changes import events_after
from backend.service.maintenance.reconciler import take_lease
from backend.service.webhook.addresses import SECONDS, Target, Unreachable, resolve
from backend.service.webhook.messages import UNSIGNED, RunNames, choose_format, make_body, make_headers
from backend.service.webhook.post import post
from backend.storage.engine import Sessions, insert_into, reading
from backend.storage.models import Event, Experiment, Run, Webhook

logger = logging.getLogger(__name__)

NAME = "webhook"
KINDS = ("diagnosis", "lifecycle")
LEVELS = ("info", "warning", "error")
LOOK_SECONDS = 1.0
LEASE_SECONDS = 30.0
PAGE = 100
MAX_REASON = 500
"""Characters of a failure that are kept."""

BACKOFF_SECONDS = (5.0, 30.0, 120.0, 600.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0, 28_800.0)
"""Pauses between the tries of one event: about a day; then it is given up, and that is an event too."""


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
        """End, after the request that is under way or without it: it is sent again."""
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
            except Exception:  # the thread outlives whatever one event does to it
                logger.exception("the webhook failed")

    def send_next(self) -> bool:
        """Deliver the next due event or skip ignored ones; return whether to continue."""
        with reading(self._sessions) as session:
            row = session.get(Webhook, NAME)
            if row is not None and not self._is_due(row):
                return False
            events = events_after(session, row.event_id, PAGE) if row else []
            old = _archived_runs(session, events)
            event = next(
                (
                    candidate
                    for candidate in events
                    if self._is_wanted(candidate) and candidate.run_id not in old
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
            self._settle(event_id, events[-1].id, delivered=False)
            return len(events) == PAGE
        try:
            self._deliver(event, run, now)
        except Exception as error:  # noqa: BLE001 - an event that cannot be written holds up no other one
            self._fail(event_id, event, failures, error)
            return False
        self._settle(event_id, event.id, delivered=True)
        return True

    def _is_due(self, row: Webhook) -> bool:
        """Return whether the pause after a failure is over; a longer one is of a clock that went back."""
        left = row.try_after - self._clock()
        return not row.failures or not 0 < left <= max(BACKOFF_SECONDS)

    def _is_wanted(self, event: Event) -> bool:
        least = LEVELS.index(self._settings.grpolab_webhook_level)
        return event.kind in KINDS and event.level in LEVELS[least:]

    def _deliver(self, event: Event, run: RunNames | None, now: float) -> None:
        settings, until = self._settings, time.monotonic() + SECONDS
        form = choose_format(settings.grpolab_webhook_url, settings.grpolab_webhook_format)
        if form == "json" and not settings.grpolab_webhook_secret:
            raise Unreachable(UNSIGNED)
        body = make_body(event, run, form)
        headers = make_headers(event.id, body, settings.grpolab_webhook_secret, now)
        target = resolve_target(settings)
        post(target, body, headers, seconds=until - time.monotonic())

    def _settle(self, event_id: int, reached: int, *, delivered: bool) -> None:
        with self._sessions.begin() as session:
            row = _load_position(session)
            if row.event_id == event_id:  # else another process was quicker
                row.event_id, row.failures, row.last_error = reached, 0, ""
                row.delivered_at = self._clock() if delivered else row.delivered_at

    def _fail(self, event_id: int, event: Event, failures: int, error: Exception) -> None:
        is_known = isinstance(error, Unreachable)
        error_text = str(error) if is_known else f"{type(error).__name__}: {error}"
        reason = redact(clean_text(error_text))[:MAX_REASON]  # an endpoint may answer anything
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
        """Without an address nothing waits; one that is set later begins with what happens from then on."""
        with self._sessions.begin() as session:
            session.execute(delete(Webhook))


def resolve_target(settings: Settings) -> Target:
    """Return the address of the webhook, resolved and checked; raises Unreachable."""
    return resolve(settings.grpolab_webhook_url, private=settings.grpolab_webhook_private)


def _archived_runs(session: Session, events: Sequence[Event]) -> set[str]:
    """Ids of runs that were imported from archives: their events are history."""
    runs = {event.run_id for event in events if event.run_id}
    query = select(Run.id).where(Run.id.in_(runs), Run.origin == ARCHIVED)
    return set(session.scalars(query)) if runs else set()


def _load_position(session: Session) -> Webhook:
    """Return the stored position; a new one begins behind the newest event."""
    newest = session.scalar(select(func.max(Event.id))) or 0
    fresh = {"name": NAME, "event_id": newest, "failures": 0, "try_after": 0.0, "last_error": ""}
    session.execute(insert_into(session, Webhook).values(**fresh).on_conflict_do_nothing())
    return session.get_one(Webhook, NAME, with_for_update=True)


def _load_names(session: Session, run_id: str | None) -> RunNames | None:
    columns = (Run.id, Run.name, Experiment.name, Run.variant, Run.seed, Run.status, Run.verdict)
    query = select(*columns).join_from(Run, Experiment, Run.experiment_id == Experiment.id, isouter=True)
    row = session.execute(query.where(Run.id == run_id)).one_or_none()
    if row is None:
        return None
    run, name, experiment, variant, seed, status, verdict = row
    return RunNames(run, name, experiment or "", variant, seed, status, verdict)
