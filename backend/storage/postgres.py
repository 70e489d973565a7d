"""A Postgres connection that never waits for ever.

A server that is stopped, or behind a broken link, answers nothing at all; its own timeouts do not run then.
"""

from typing import Any

import psycopg
from psycopg.pq import Format, TransactionStatus

STATEMENT_SECONDS = 10
"""A statement that takes longer is ended by the server."""

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
"""How a dead link is noticed; the last four mean nothing on a unix socket."""


class BoundedConnection(psycopg.Connection[Any]):
    """Every answer comes within `answer_seconds`, or the connection is closed with an OperationalError."""

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
    """Before a statement: with the execution option `binary`, bytes come as they are, not spelled out in hex.

    Not for all statements: SQLAlchemy reads the catalogue's odd types as text.
    """
    if context is not None and context.execution_options.get("binary"):
        cursor.format = Format.BINARY


def connect(conninfo: str = "", *, answer_seconds: float, **parameters: Any) -> BoundedConnection:
    """A connection with a limit of its own to the time of an answer."""
    connection = BoundedConnection.connect(conninfo, **parameters)
    connection.answer_seconds = answer_seconds
    return connection
