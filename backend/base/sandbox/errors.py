"""Errors of a sandboxed process, as its owner receives them."""

from typing import Any

from backend.base.text import clean_text

MAX_WORDS = 2000
"""Characters of an error that a sandboxed process reports."""


class SandboxError(Exception):
    """The sandboxed process did not answer a request."""


class TimedOut(SandboxError):
    """The work took longer than its limit and was killed."""


class Died(SandboxError):
    """The process ended while it worked, for instance at its memory limit."""


class Refused(SandboxError):
    """The operation raised an error."""


class Unusable(Exception):
    """The sandbox cannot start or import what it needs: an error of the installation, not of an answer."""


def excerpt(words: Any) -> str:
    """Return a message that a log and a database can hold; a compromised process may send anything."""
    return clean_text(str(words)[:MAX_WORDS])
