"""The schema versions that this code supports, read without Alembic, which is slow to import."""

from functools import cache

from sqlalchemy import Connection, inspect, text

from backend.base.locations import FILES_ROOT

MIGRATIONS = FILES_ROOT / "migrations"


@cache
def known_schemas() -> frozenset[str]:
    """Return every supported schema version, which is the number at the start of a migration's file name."""
    return frozenset(path.name[:4] for path in MIGRATIONS.glob("versions/[0-9][0-9][0-9][0-9]_*.py"))


def newest_schema() -> str:
    """Return the schema version that this code requires."""
    return max(known_schemas())


def unknown_schema_reason(schema: str) -> str:
    """Return the end of a sentence that explains why a schema cannot be read and how to proceed."""
    if schema < min(known_schemas()):
        return (
            "of a version before the first release, which is not read any more: export its runs as archives "
            "with that version and import them here"
        )
    return f"which is newer than this version knows ({newest_schema()}): start the newer version again"


def read_schema(connection: Connection) -> str:
    """Return the schema version of a database, or "" if it has none. Raises MultipleResultsFound for two."""
    if not inspect(connection).has_table("alembic_version"):
        return ""
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one_or_none() or ""
