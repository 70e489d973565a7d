"""A Postgres connection with a time limit on every answer.

A stopped server or one behind a broken link does not answer, and its own timeouts do not run.
"""

from typing import Any

import psycopg
from psycopg.pq import Format, TransactionStatus

STATEMENT_SECONDS = 10
"""Time limit of a statement, in seconds, enforced by the server."""

OPTIONS = (
    f"-c statement_timeout={STATEMENT_SECONDS}s -c lock_timeout=5s "
    "-c idle_in_transaction_session_timeout=60s -c timezone=UTC"
)

LINK: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,  # milliseconds
}
"""Connection options that detect a dead link; the last four have no effect on a unix socket."""


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that closes and raises OperationalError if an answer takes over `answer_seconds`."""

    answer_seconds: float

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """See psycopg: run a generator that talks to the server."""
        try:
            return super().wait(gen, interval, self.answer_seconds if timeout is None else timeout)
        except psycopg.OperationalError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.pgconn.finish()  # whatever it answers later belongs to nobody
            raise


def choose_format(
    _connection: Any, cursor: Any, _statement: str, _parameters: Any, context: Any, _many: object
) -> None:
    """Choose the result format of a statement: with the execution option `binary`, bytes are not sent as hex.

    Other statements stay in text format because SQLAlchemy reads some types of the catalogue as text.
    """
    if context is not None and context.execution_options.get("binary"):
        cursor.format = Format.BINARY


def connect(conninfo: str = "", *, answer_seconds: float, **parameters: Any) -> BoundedConnection:
    """Open a connection with its own time limit per answer."""
    connection = BoundedConnection.connect(conninfo, **parameters)
    connection.answer_seconds = answer_seconds
    return connection
