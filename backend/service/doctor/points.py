"""Blocks of points and completions: whether they are as they were written; what sealing has left free."""

import time
from collections.abc import Sequence
from itertools import islice

from sqlalchemy import Connection, text
from sqlalchemy.orm import Session

from backend.metrics.block_check import damage_sentence, find_damaged_blocks
from backend.rollouts.block_check import find_damaged_groups
from backend.service.doctor.finding import Finding, bad, ok, warn
from backend.storage.schema import newest_schema, read_schema

SECONDS = 5.0
"""Time for reading blocks."""

NAMED = 3
"""Damaged blocks that are named, at most."""

MUCH_FREE = 2**30
"""Free bytes of a database file that are worth a word, if they are half of it."""


def points(session: Session) -> Finding:
    """Return whether the checksums of blocks are right, of as many as a few seconds suffice for."""
    if read_schema(session.connection()) != newest_schema():
        return ok("points", "checked once the schema is up to date")
    until = time.monotonic() + SECONDS
    damages = [
        damage_sentence(session, *block_and_reason)
        for block_and_reason in islice(find_damaged_blocks(session, until=until), NAMED)
    ]
    return _damage_finding("points", damages, until)


def completions(session: Session) -> Finding:
    """Check the blocks of completions."""
    if read_schema(session.connection()) != newest_schema():
        return ok("rollouts", "checked once the schema is up to date")
    until = time.monotonic() + SECONDS
    return _damage_finding("rollouts", list(islice(find_damaged_groups(session, until=until), NAMED)), until)


def _damage_finding(name: str, damages: Sequence[str], until: float) -> Finding:
    if damages:
        return bad(name, "; ".join(damages))
    if time.monotonic() > until:
        return ok(name, f"no damaged block among those that were read in {SECONDS:.0f} s")
    return ok(name, "no damaged block")


def free_pages(connection: Connection) -> Finding:
    """Return the free pages of a SQLite file: rows that became blocks leave them, and they are written
    again.
    """
    size, pages, free = (
        connection.scalar(text(f"PRAGMA {name}")) or 0
        for name in ("page_size", "page_count", "freelist_count")
    )
    used = f"{size * free / 1e6:,.0f} of {size * pages / 1e6:,.0f} MB are free and will be used again"
    if size * free > MUCH_FREE and 2 * free > pages:
        return warn("pages", f"{used}; to have them back, stop the service and run `VACUUM` in sqlite3")
    return ok("pages", used)
