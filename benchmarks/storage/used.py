"""Measure the bytes that tables take on either database."""

from collections.abc import Sequence

from sqlalchemy import text

from backend.storage.engine import Sessions

TOAST_SIZE_QUERY = text(
    "SELECT pg_relation_size(reltoastrelid) FROM pg_class WHERE oid = to_regclass(:table)"
)


def used_bytes(sessions: Sessions, tables: Sequence[str]) -> int:
    """Return the used bytes: on SQLite all except free pages, on Postgres tables with indexes.

    Deleted rows are first removed from tables of Postgres by `VACUUM FULL`, or by `VACUUM`, as in service,
    if values are stored out of line, because `VACUUM FULL` fills such pages worse than inserts.
    """
    engine = sessions.kw["bind"]
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if engine.dialect.name == "sqlite":
            names = ("page_size", "page_count", "freelist_count")
            size, pages, free_pages = (connection.scalar(text(f"PRAGMA {name}")) for name in names)
            return int(size * (pages - free_pages))
        total = 0
        for table in tables:
            has_toast = connection.scalar(TOAST_SIZE_QUERY, {"table": table})
            connection.execute(text(f"VACUUM {'' if has_toast else 'FULL'} {table}"))
            total += connection.scalar(text(f"SELECT pg_total_relation_size('{table}')"))
        return total
