"""The outcome of a trainer's work on a run."""

from typing import Literal, NamedTuple

REASON_CHARACTERS = 2_000
"""An error's message is cut here; all of it stands in the log."""


Status = Literal["finished", "stopped", "paused", "failed", "queued"]
"""queued: the worker was asked to stop; another one continues from the checkpoint."""


class Outcome(NamedTuple):
    """The status a run gets when its trainer ends by itself, and why."""

    status: Status
    reason: str = ""
    """One sentence, or a word such as no_signal; shown beside the status."""

    wish: str = ""
    """The user's, where the run ends for it."""


class NodeLost(RuntimeError):
    """Another node of the run did not come or is gone, through no fault of the run."""


EXIT_FAILED = 1
"""A trainer failed; it said why on its output."""

EXIT_ORPHANED = 75
"""A trainer's supervisor is gone."""

EXIT_FENCED = 76
"""Another attempt owns the trainer's run."""
