"""The outcome of a trainer's work on a run."""

from typing import Literal, NamedTuple

REASON_CHARACTERS = 2_000
"""Maximum length of a stored error message, in characters. The log contains the complete message."""


Status = Literal["finished", "stopped", "paused", "failed", "queued"]
"""Status of an ended run. If it is queued, the worker was asked to stop and another one continues the run."""


class Outcome(NamedTuple):
    """The status that a run gets when its trainer ends by itself, and the reason."""

    status: Status
    reason: str = ""
    """Reason as a sentence, or as a word such as no_signal. It is shown next to the status."""

    requested_action: str = ""
    """Request of the user, if it ended the run."""


class NodeLost(RuntimeError):
    """Raised if another node of the run did not join or has ended, through no fault of the run."""


EXIT_FAILED = 1
"""Exit code of a trainer that failed and printed the reason."""

EXIT_ORPHANED = 75
"""Exit code of a trainer whose supervisor is gone."""

EXIT_FENCED = 76
"""Exit code of a trainer whose run is owned by another attempt."""
