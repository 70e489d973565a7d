"""Chores: longer jobs of the reconciler, which are polled for every few seconds and done in small pieces.

Chores seal points, index completions, judge runs and trials, advance searches, remove files that belong to no
run, and remove token values that exceed their budget.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from backend.analysis.diagnosis.store import find_unjudged_runs, judge_runs
from backend.base.errors import GrpoLabError
from backend.base.settings import Settings
from backend.experiments.searches.advance import advance
from backend.experiments.searches.store import active_searches
from backend.experiments.trials.store import due_trials, settle_trial
from backend.metrics.sealing import find_sealable, seal
from backend.rollouts.token_budget import TokenBudget
from backend.runs.queue.doorbell import ring
from backend.runs.strays import Strays
from backend.service.maintenance.damaged_blocks import tell_block
from backend.storage.engine import Sessions, open_read_session
from backend.storage.rollout_words import has_unindexed_groups, index_groups

logger = logging.getLogger(__name__)

SEAL_SECONDS, SEAL_PAUSE_SECONDS = 0.1, 5.0
INDEX_SECONDS, INDEX_PAUSE_SECONDS = 0.25, 2.0
JUDGE_SECONDS, JUDGE_PAUSE_SECONDS = 0.1, 5.0
SWEEP_SECONDS, SWEEP_PAUSE_SECONDS = 0.2, 3600.0
SWEEP_DELAY_SECONDS = 60.0
BUDGET_SECONDS, BUDGET_PAUSE_SECONDS = 0.2, 60.0
TRIAL_PAUSE_SECONDS = 5.0
SEARCH_PAUSE_SECONDS = 2.0
MAX_SEARCH_STEPS = 8
"""Maximum number of steps of one search in one piece of work."""

EXPECTED_ERRORS = (ArithmeticError, AttributeError, GrpoLabError, LookupError, TypeError, ValueError)
"""Programming errors; a trial or search that raises one is skipped, so that the others continue."""

Work = Callable[[], bool]
"""A function that does a piece of a job and returns whether more is left.

If the process is killed, the current piece is lost.
"""


@dataclass(slots=True)
class Chore:
    """A longer job of the reconciler."""

    find: Callable[[Session], Work | None]
    """Function that returns the work to do, or None if there is none."""
    pause: float
    """Seconds from the end of the work, or from a poll without work, to the next poll."""
    seconds: float = 0.0
    """Maximum seconds for this chore in one round of the reconciler; at least one piece is done."""
    next_look: float = 0.0
    """Monotonic time of the next poll."""
    work: Work | None = None

    def poll(self, session: Session) -> None:
        """Poll for work if none is in progress and the pause is over."""
        if self.work is None and time.monotonic() > self.next_look:
            self.next_look = time.monotonic() + self.pause
            self.work = self.find(session)

    def go_on(self) -> None:
        """Continue the work until it is done or the time of this round is over."""
        deadline = time.monotonic() + self.seconds
        while self.work is not None:
            if not self.work():
                self.work = None
                self.next_look = time.monotonic() + self.pause
            elif time.monotonic() > deadline:
                return


def all_chores(settings: Settings, sessions: Sessions) -> list[Chore]:
    """Return all chores of an installation."""
    trials = _OneByOne("trial", due_trials, lambda trial: settle_trial(sessions, settings, trial))
    searches = _OneByOne(
        "search", active_searches, lambda search: _advance_search(search, sessions, settings)
    )
    strays, budget = Strays(settings, sessions), TokenBudget(settings, sessions)
    start = time.monotonic()

    def points(session: Session) -> Work | None:
        tasks = find_sealable(session)
        return _make_work(seal(sessions, tasks, tell_block)) if tasks else None

    def verdicts(session: Session) -> Work | None:
        runs = find_unjudged_runs(session)
        return _make_work(_judge_runs(sessions, runs)) if runs else None

    return [
        Chore(points, SEAL_PAUSE_SECONDS, SEAL_SECONDS),
        Chore(
            lambda session: _make_work(index_groups(sessions)) if has_unindexed_groups(session) else None,
            INDEX_PAUSE_SECONDS,
            INDEX_SECONDS,
        ),
        Chore(trials.find, TRIAL_PAUSE_SECONDS),
        Chore(searches.find, SEARCH_PAUSE_SECONDS),
        Chore(verdicts, JUDGE_PAUSE_SECONDS, JUDGE_SECONDS),
        Chore(
            lambda _session: _make_work(_sweep_files(strays)),
            SWEEP_PAUSE_SECONDS,
            SWEEP_SECONDS,
            next_look=start + SWEEP_DELAY_SECONDS,
        ),
        Chore(
            lambda _session: _make_work(budget.sweep()),
            BUDGET_PAUSE_SECONDS,
            BUDGET_SECONDS,
            next_look=start + BUDGET_PAUSE_SECONDS,
        ),
    ]


class _OneByOne:
    """Settles trials or searches one by one; skips one that failed unexpectedly until the next start."""

    def __init__(
        self, kind: str, find_due: Callable[[Session], list[str]], settle_one: Callable[[str], object]
    ) -> None:
        self._kind, self._find, self._settle = kind, find_due, settle_one
        self._due: list[str] = []
        self._refused: set[str] = set()

    def find(self, session: Session) -> Work | None:
        """Return the work that settles due subjects, or None if nothing is due."""
        self._due = [subject for subject in self._find(session) if subject not in self._refused]
        return self._settle_next if self._due else None

    def _settle_next(self) -> bool:
        if not self._due:  # the previous one failed
            return False
        subject = self._due.pop(0)
        try:
            self._settle(subject)
        except OSError as error:
            logger.warning("%s %s is tried again later: %s", self._kind, subject, error)
        except EXPECTED_ERRORS:
            self._refused.add(subject)
            logger.exception("%s %s failed, and is left alone until the next start", self._kind, subject)
        return bool(self._due)


_END = object()


def _make_work(iterator: Iterator[None]) -> Work:
    """Return the work of a generator that yields after each piece."""
    return lambda: next(iterator, _END) is not _END


def _advance_search(search: str, sessions: Sessions, settings: Settings) -> None:
    for _ in range(MAX_SEARCH_STEPS):
        if not advance(sessions, settings, search):
            return
        ring(settings)


def _judge_runs(sessions: Sessions, runs: Sequence[str]) -> Iterator[None]:
    """Judge these runs, and then the runs that need a verdict by then."""
    while runs:
        yield from judge_runs(sessions, runs)
        with open_read_session(sessions) as session:
            runs = find_unjudged_runs(session)


def _sweep_files(strays: Strays) -> Iterator[None]:
    """Check the files of the runs once."""
    try:
        yield from strays.sweep()
    except OSError as error:
        logger.warning("cannot check the files of the runs: %s", error)
