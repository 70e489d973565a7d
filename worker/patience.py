"""What a process does while the database is away for a while: wait and try again, or leave it for later."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import sqlalchemy.exc
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from backend.database import Sessions, reading

logger = logging.getLogger(__name__)

PASSING = (OperationalError, InterfaceError, sqlalchemy.exc.TimeoutError)
"""What a database says that is away, restarting or too busy."""

PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Between tries; the last one again and again."""

Result = TypeVar("Result")


def persist(sessions: Sessions, transact: Callable[[Session], Result]) -> Result:
    """Run a transaction, again and again while the database is away.

    The database may go away while it commits, so `transact` may run again after it has succeeded.
    """

    def once() -> Result:
        with sessions.begin() as session:
            return transact(session)

    return _insist(once)


def consult(sessions: Sessions, query: Callable[[Session], Result]) -> Result:
    """What a query finds, however long the database is away; no writer waits for it."""

    def once() -> Result:
        with reading(sessions) as session:
            return query(session)

    return _insist(once)


def _insist(once: Callable[[], Result]) -> Result:
    tries = 0
    while True:
        try:
            return once()
        except PASSING as error:
            logger.warning("the database is away, trying again: %s", first_line(error))
            time.sleep(PAUSES_SECONDS[min(tries, len(PAUSES_SECONDS) - 1)])
            tries += 1


@contextmanager
def left_for_later(what: str) -> Iterator[None]:
    """What is done again anyway may fail, whatever the database says."""
    try:
        yield
    except SQLAlchemyError as error:
        logger.warning("cannot %s now: %s", what, first_line(error))


def first_line(error: BaseException) -> str:
    """The essence of a database driver's message."""
    return str(error).strip().partition("\n")[0]
