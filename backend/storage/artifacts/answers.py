"""What an artifact store may answer."""

BLOCK_BYTES = 16 * 2**20
"""Read at a time of a file."""


class BadAnswer(Exception):
    """A storage answers with more than it was asked for, or leads elsewhere."""
