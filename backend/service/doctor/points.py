"""Check blocks of points and completions for damage, and SQLite files for free pages."""

import time
from collections.abc import Sequence
from itertools import islice

from sqlalchemy import Connection, text
from sqlalchemy.orm import Session

from backend.metrics.block_check import damage_sentence, find_damaged_blocks
from backend.rollouts.block_check import find_damaged_groups
from backend.service.doctor.finding import Finding, bad, ok, warn
from backend.storage.schema import newest_schema, read_schema

TIME_LIMIT_SECONDS = 5.0
"""Time limit for reading blocks, in seconds."""

MAX_NAMED = 3
"""Maximum number of damaged blocks that are listed."""

MANY_FREE_BYTES = 2**30
"""Number of free bytes in a database file above which they are reported, if they are half of it."""


def points(session: Session) -> Finding:
    """Check the checksums of as many blocks of points as can be read in a few seconds."""
    if read_schema(session.connection()) != newest_schema():
        return ok("points", "checked once the schema is up to date")
    deadline = time.monotonic() + TIME_LIMIT_SECONDS
    damages = [
        damage_sentence(session, *block_and_reason)
        for block_and_reason in islice(find_damaged_blocks(session, deadline=deadline), MAX_NAMED)
    ]
    return _damage_finding("points", damages, deadline)


def completions(session: Session) -> Finding:
    """Check the blocks of completions."""
    if read_schema(session.connection()) != newest_schema():
        return ok("rollouts", "checked once the schema is up to date")
    deadline = time.monotonic() + TIME_LIMIT_SECONDS
    return _damage_finding(
        "rollouts", list(islice(find_damaged_groups(session, deadline=deadline), MAX_NAMED)), deadline
    )


def _damage_finding(name: str, damages: Sequence[str], deadline: float) -> Finding:
    if damages:
        return bad(name, "; ".join(damages))
    if time.monotonic() > deadline:
        return ok(name, f"no damaged block among those that were read in {TIME_LIMIT_SECONDS:.0f} s")
    return ok(name, "no damaged block")


def free_pages(connection: Connection) -> Finding:
    """Report the free pages of a SQLite file, which are left by rows that became blocks and are reused."""
    size, pages, free_count = (
        connection.scalar(text(f"PRAGMA {name}")) or 0
        for name in ("page_size", "page_count", "freelist_count")
    )
    usage = f"{size * free_count / 1e6:,.0f} of {size * pages / 1e6:,.0f} MB are free and will be used again"
    if size * free_count > MANY_FREE_BYTES and 2 * free_count > pages:
        return warn("pages", f"{usage}; to have them back, stop the service and run `VACUUM` in sqlite3")
    return ok("pages", usage)
