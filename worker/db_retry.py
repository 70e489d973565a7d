"""Retry while the database is unavailable, or leave the work for later."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from backend.storage.engine import Sessions, database_address, open_read_session
from backend.storage.faults import Fault, database_fault

logger = logging.getLogger(__name__)

PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses between tries, in seconds. The last one is repeated."""

Result = TypeVar("Result")


Waiting = Callable[[Fault], None]
"""Callback that receives the fault after every failed try."""


def _report_nothing(_fault: Fault) -> None:
    """Ignore the fault, which is only logged."""


def retry_transaction(
    sessions: Sessions, transact: Callable[[Session], Result], *, report_waiting: Waiting = _report_nothing
) -> Result:
    """Run a transaction, and retry it while the database is away, locked, full or read-only.

    The database may go away while it commits, so `transact` may run again after it has succeeded.
    """

    def run_transaction() -> Result:
        with sessions.begin() as session:
            return transact(session)

    return _retry(run_transaction, sessions, report_waiting)


def retry_query(
    sessions: Sessions, query: Callable[[Session], Result], *, report_waiting: Waiting = _report_nothing
) -> Result:
    """Return the result of a query, retried while the database is away; no writer waits for it."""

    def run_query() -> Result:
        with open_read_session(sessions) as session:
            return query(session)

    return _retry(run_query, sessions, report_waiting)


def _retry(operation: Callable[[], Result], sessions: Sessions, report_waiting: Waiting) -> Result:
    failures = 0
    while True:
        try:
            return operation()
        except SQLAlchemyError as error:
            fault = database_fault(error, database_address(sessions))
            if fault is None or fault.kind == "damaged":
                raise
            logger.warning("%s, trying again: %s", fault.sentence, first_line(error))
            report_waiting(fault)
            time.sleep(PAUSES_SECONDS[min(failures, len(PAUSES_SECONDS) - 1)])
            failures += 1


@contextmanager
def left_for_later(action: str) -> Iterator[None]:
    """Suppress and log database errors in the block, because the work is repeated anyway."""
    try:
        yield
    except SQLAlchemyError as error:
        logger.warning("cannot %s now: %s", action, first_line(error))


def first_line(error: BaseException) -> str:
    """Return the first line of a database driver's message."""
    return str(error).strip().partition("\n")[0]
