"""The way back to an older version: its schema, with every run as this version knows it."""

import sqlite3
from pathlib import Path

from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError

from backend.db.engine import open_engine, open_sessions, reading
from backend.db.migrate import copy_beside, downgrade
from backend.db.schema import known_schemas, newest_schema, schema_of
from backend.errors import Conflict, Unavailable
from backend.process.instance_lock import AlreadyRunning, hold_instance, is_alive
from backend.process.preflight import check_database, check_state_dir
from backend.settings import Settings, service_url
from backend.workers.store import live_slots


def downgrade_database(settings: Settings, schema: str) -> str:
    """Bring the database of a stopped installation to an older schema; the schema that it had.

    It happens in one transaction. Raises Conflict where something is in the way, and Unavailable.
    """
    if schema not in known_schemas() or schema == newest_schema():
        raise Conflict(
            f"{schema!r:.50} is not an older schema that this version knows (its own is {newest_schema()}): "
            "`make doctor` in the older version names its newest one"
        )
    url = make_url(settings.effective_database_url)
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        raise Conflict(f"there is no database in {settings.state}: the older version makes one itself")
    if (copy := copy_beside(url, newest_schema())) and copy.exists():
        raise Conflict(f"{copy} exists: move it away, because the database is copied there before it changes")
    check_state_dir(settings)
    check_database(settings)
    if is_alive(service_url(settings)):
        raise Conflict(f"a service answers at {service_url(settings)}: stop it first")
    try:
        with hold_instance(settings, service_url(settings)):
            before = _check_idle(settings, schema)
            downgrade(settings.effective_database_url, schema)
    except AlreadyRunning as running:
        raise Conflict(f"{running}: stop it first") from None
    except (SQLAlchemyError, sqlite3.Error, OSError, ValueError) as error:  # ValueError: damaged values
        reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
        raise Unavailable(f"nothing was changed: {reason}") from None
    return before


def _check_idle(settings: Settings, schema: str) -> str:
    engine = open_engine(settings.effective_database_url, pool_size=1)
    try:
        with reading(open_sessions(engine)) as session:
            before = schema_of(session.connection())
            if before != newest_schema():
                raise Conflict(
                    f"the database has schema {before or 'none'}, this version's is {newest_schema()}: "
                    f"run `downgrade {schema}` with the version that wrote it"
                )
            if live_slots(session):
                raise Conflict(
                    "a worker is using this database, or was half a minute ago: stop all workers first"
                )
            return before
    finally:
        engine.dispose()
