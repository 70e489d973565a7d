"""A Postgres connection with a time limit for every response.

The server's timeouts have no effect if the server is stopped or the network link is broken.
"""

from typing import Any

import psycopg
from psycopg.pq import Format, TransactionStatus

STATEMENT_SECONDS = 10
"""Time limit of a statement, in seconds, enforced by the server."""

SERVER_OPTIONS = (
    f"-c statement_timeout={STATEMENT_SECONDS}s -c lock_timeout=5s "
    "-c idle_in_transaction_session_timeout=60s -c timezone=UTC"
)

CONNECTION_OPTIONS: dict[str, Any] = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,  # milliseconds
}
"""Connection options that detect a dead link. The last four have no effect on a Unix socket."""


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that closes and raises OperationalError if a response takes over `answer_seconds`."""

    answer_seconds: float

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Run a generator that communicates with the server, as in psycopg."""
        try:
            return super().wait(gen, interval, self.answer_seconds if timeout is None else timeout)
        except psycopg.OperationalError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.pgconn.finish()  # a late response must not be read as that of another statement
            raise


def choose_format(
    _connection: Any, cursor: Any, _statement: str, _parameters: Any, context: Any, _many: object
) -> None:
    """Set the binary result format for statements with the execution option `binary`, which avoids hex
    encoding.

    Other statements use the text format because SQLAlchemy reads some types of the catalogue as text.
    """
    if context is not None and context.execution_options.get("binary"):
        cursor.format = Format.BINARY


def connect(conninfo: str = "", *, answer_seconds: float, **parameters: Any) -> BoundedConnection:
    """Open a connection with a time limit for each response."""
    connection = BoundedConnection.connect(conninfo, **parameters)
    connection.answer_seconds = answer_seconds
    return connection
