"""Exceptions that the client of a sandboxed process raises."""

from typing import Any

from backend.base.text import clean_text

MAX_ERROR_CHARACTERS = 2000
"""Maximum length of an error message from a sandboxed process, in characters."""


class SandboxError(Exception):
    """The sandboxed process did not answer a request."""


class TimedOut(SandboxError):
    """The work took longer than its limit and was killed."""


class Died(SandboxError):
    """The process ended before it answered, for instance because it reached its memory limit."""


class Refused(SandboxError):
    """The operation raised an error."""


class Unusable(Exception):
    """The sandbox cannot start or import its code, which is an error of the installation."""


def excerpt(text: Any) -> str:
    """Return a message that is safe to log and store, because a compromised process may send any text."""
    return clean_text(str(text)[:MAX_ERROR_CHARACTERS])
