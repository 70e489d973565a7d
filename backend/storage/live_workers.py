"""Which worker slots count as alive."""

from sqlalchemy import ColumnElement

from backend.storage.engine import db_now
from backend.storage.models import Worker

SILENT_SECONDS = 30.0
"""A worker that was not seen for this long counts as gone."""


def seen_lately() -> ColumnElement[bool]:
    """Whether a slot has given a sign of life."""
    return Worker.seen_at >= db_now() - SILENT_SECONDS
