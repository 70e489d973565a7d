"""Bytes that tables take on either database."""

from collections.abc import Sequence

from sqlalchemy import text

from backend.db.engine import Sessions


def used(sessions: Sessions, tables: Sequence[str]) -> int:
    """Bytes of a SQLite file but for free pages, which are used again; of tables with indexes on Postgres."""
    engine = sessions.kw["bind"]
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        if engine.dialect.name == "sqlite":
            names = ("page_size", "page_count", "freelist_count")
            size, pages, free = (connection.scalar(text(f"PRAGMA {name}")) for name in names)
            return int(size * (pages - free))
        total = 0
        for table in tables:
            connection.execute(text(f"VACUUM FULL {table}"))
            total += connection.scalar(text(f"SELECT pg_total_relation_size('{table}')"))
        return total
