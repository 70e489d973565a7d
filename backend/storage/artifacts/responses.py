"""Limits for responses from an artifact store."""

BLOCK_BYTES = 16 * 2**20
"""Size of one read from a file, in bytes."""


class BadResponse(Exception):
    """The storage returned more data than was requested, or a redirect."""
