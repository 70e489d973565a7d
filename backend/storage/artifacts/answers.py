"""Limits on the answers of an artifact store."""

BLOCK_BYTES = 16 * 2**20
"""Size of one read from a file, in bytes."""


class BadAnswer(Exception):
    """A storage answered with more than was requested, or with a redirect."""
