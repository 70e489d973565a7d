"""Chores: the reconciler's longer jobs, which it looks for every few seconds and does piece by piece.

They pack points, pack completions of earlier versions, index completions, judge runs and trials, go on with
searches, and remove files that belong to nobody and token values beyond their budget.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from backend.db.engine import Sessions, reading
from backend.db.rollout_words import index_groups, unindexed
from backend.diagnosis.store import judge_runs, unjudged
from backend.errors import GrpoLabError
from backend.maintenance.damaged_blocks import tell_block
from backend.metrics.packing import pack, packable
from backend.queue.doorbell import ring
from backend.rollouts.conversion import convert, is_unconverted
from backend.rollouts.token_budget import TokenBudget
from backend.runs.strays import Strays
from backend.searches.advance import advance
from backend.searches.store import active_searches
from backend.settings import Settings
from backend.trials.store import due_trials, settle

logger = logging.getLogger(__name__)

PACK_SECONDS, PACK_PAUSE_SECONDS = 0.1, 5.0
CONVERT_SECONDS, CONVERT_PAUSE_SECONDS = 0.25, 60.0
INDEX_SECONDS, INDEX_PAUSE_SECONDS = 0.25, 2.0
JUDGE_SECONDS, JUDGE_PAUSE_SECONDS = 0.1, 5.0
SWEEP_SECONDS, SWEEP_PAUSE_SECONDS = 0.2, 3600.0
SWEEP_DELAY_SECONDS = 60.0
BUDGET_SECONDS, BUDGET_PAUSE_SECONDS = 0.2, 60.0
TRIAL_PAUSE_SECONDS = 5.0
SEARCH_PAUSE_SECONDS = 2.0
SEARCH_STEPS = 8
"""Steps of a search in one piece."""

FAULTS = (ArithmeticError, AttributeError, GrpoLabError, LookupError, TypeError, ValueError)
"""Errors that no test has met: one trial or search must not keep the others from theirs."""

Work = Iterator[None]
"""Yields after each piece; a process that is killed loses the piece that it was at."""


@dataclass(slots=True)
class Chore:
    """One of the longer jobs."""

    find: Callable[[Session], Work | None]
    """What there is to do; None if there is nothing."""
    pause: float
    """Seconds between two looks for work."""
    seconds: float = 0.0
    """So long a look of the reconciler goes on with it; one piece at least."""
    after: float = 0.0
    """Work is not looked for before this time of the monotonic clock."""
    work: Work | None = None

    def look(self, session: Session) -> None:
        """Find work, if there is none yet and the pause is over."""
        now = time.monotonic()
        if self.work is None and now > self.after:
            self.after = now + self.pause
            self.work = self.find(session)

    def go_on(self) -> None:
        """Do some of the work."""
        until = time.monotonic() + self.seconds
        for _ in self.work or ():
            if time.monotonic() > until:
                return
        self.work = None


def all_chores(settings: Settings, sessions: Sessions) -> list[Chore]:
    """Every chore of an installation."""
    trials = _OneByOne("trial", due_trials, lambda trial: settle(sessions, trial))
    searches = _OneByOne("search", active_searches, lambda search: _go_on_with(search, sessions, settings))
    strays, budget = Strays(settings, sessions), TokenBudget(settings, sessions)
    start = time.monotonic()

    def points(session: Session) -> Work | None:
        tasks = packable(session)
        return pack(sessions, tasks, tell_block) if tasks else None

    def verdicts(session: Session) -> Work | None:
        runs = unjudged(session)
        return _judge(sessions, runs) if runs else None

    return [
        Chore(points, PACK_PAUSE_SECONDS, PACK_SECONDS),
        Chore(
            lambda session: convert(sessions) if is_unconverted(session) else None,
            CONVERT_PAUSE_SECONDS,
            CONVERT_SECONDS,
        ),
        Chore(
            lambda session: index_groups(sessions) if unindexed(session) else None,
            INDEX_PAUSE_SECONDS,
            INDEX_SECONDS,
        ),
        Chore(trials.find, TRIAL_PAUSE_SECONDS),
        Chore(searches.find, SEARCH_PAUSE_SECONDS),
        Chore(verdicts, JUDGE_PAUSE_SECONDS, JUDGE_SECONDS),
        Chore(
            lambda _session: _sweep(strays),
            SWEEP_PAUSE_SECONDS,
            SWEEP_SECONDS,
            after=start + SWEEP_DELAY_SECONDS,
        ),
        Chore(
            lambda _session: budget.sweep(),
            BUDGET_PAUSE_SECONDS,
            BUDGET_SECONDS,
            after=start + BUDGET_PAUSE_SECONDS,
        ),
    ]


class _OneByOne:
    """Things of a kind that are settled one after the other; what meets an unknown fault is left alone."""

    def __init__(
        self, kind: str, due: Callable[[Session], list[str]], settle_one: Callable[[str], object]
    ) -> None:
        self._kind, self._due, self._settle = kind, due, settle_one
        self._refused: set[str] = set()

    def find(self, session: Session) -> Work | None:
        """What is due."""
        due = [each for each in self._due(session) if each not in self._refused]
        return self._each(due) if due else None

    def _each(self, due: Sequence[str]) -> Work:
        for each in due:
            try:
                self._settle(each)
            except OSError as error:
                logger.warning("%s %s goes on later: %s", self._kind, each, error)
            except FAULTS:
                self._refused.add(each)
                logger.exception("%s %s cannot go on", self._kind, each)
            yield


def _go_on_with(search: str, sessions: Sessions, settings: Settings) -> None:
    for _ in range(SEARCH_STEPS):
        if not advance(sessions, settings, search):
            return
        ring(settings)


def _judge(sessions: Sessions, runs: Sequence[str]) -> Work:
    """These runs, and those that are without a verdict then."""
    while runs:
        yield from judge_runs(sessions, runs)
        with reading(sessions) as session:
            runs = unjudged(session)


def _sweep(strays: Strays) -> Work:
    """One look through the runs' files."""
    try:
        yield from strays.sweep()
    except OSError as error:
        logger.warning("cannot check the files of the runs: %s", error)
