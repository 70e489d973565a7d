"""SQL condition for the worker slots that are alive."""

from sqlalchemy import ColumnElement

from backend.storage.engine import db_now
from backend.storage.models import Worker

MAX_SILENT_SECONDS = 30.0
"""Seconds without a heartbeat after which a worker is considered dead."""


def has_recent_heartbeat() -> ColumnElement[bool]:
    """Return the SQL condition that a slot has sent a heartbeat within MAX_SILENT_SECONDS."""
    return Worker.seen_at >= db_now() - MAX_SILENT_SECONDS
