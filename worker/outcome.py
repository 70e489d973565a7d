"""The outcome of a trainer's work on a run."""

from typing import Literal, NamedTuple

REASON_CHARACTERS = 2_000
"""Maximum length of a stored error message, in characters; the log has the whole message."""


Status = Literal["finished", "stopped", "paused", "failed", "queued"]
"""Status of an ended run. queued: the worker was asked to stop; another one continues from the checkpoint."""


class Outcome(NamedTuple):
    """Status that a run gets when its trainer ends by itself, and the reason."""

    status: Status
    reason: str = ""
    """One sentence, or a word such as no_signal; shown next to the status."""

    wish: str = ""
    """Request of the user, if the run ends because of it."""


class NodeLost(RuntimeError):
    """Another node of the run did not join or is gone, through no fault of the run."""


EXIT_FAILED = 1
"""Exit code of a trainer that failed and printed the reason."""

EXIT_ORPHANED = 75
"""Exit code of a trainer whose supervisor is gone."""

EXIT_FENCED = 76
"""Exit code of a trainer whose run is owned by another attempt."""
