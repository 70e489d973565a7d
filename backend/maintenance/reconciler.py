"""The reconciler: calls workers for waiting runs, takes back runs whose worker was lost, carries out
deletions, removes files that belong to nobody and token values beyond their budget, packs points for
reading and completions of earlier versions, indexes completions for search, judges runs that have no verdict
and trials whose runs have ended, goes on with searches, and mends what a clock that was set has disturbed.

Runs in the service's process. One process at a time does it, by a lease in SQL; two would do no harm.
"""

import logging
import threading
import time
import uuid
from collections.abc import Iterator

from sqlalchemy import func, or_, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from backend.artifacts.store import ArtifactFault
from backend.db.engine import Sessions, db_now, insert_into, reading
from backend.db.models import Run, Singleton
from backend.db.rollout_words import index_groups, unindexed
from backend.diagnosis.store import judge_runs, unjudged
from backend.errors import GrpoLabError
from backend.maintenance.clock_jumps import ClockWatch, Look, mend, tell
from backend.maintenance.damaged_blocks import tell_block, tell_damage
from backend.metrics.block_damage import noticed, told
from backend.metrics.packing import pack, packable
from backend.queue.doorbell import ring
from backend.rollouts.conversion import convert, is_unconverted
from backend.rollouts.token_budget import TokenBudget
from backend.runs.deletion import carry_on
from backend.runs.high_water_mark import raise_mark
from backend.runs.leases import LostRuns
from backend.runs.lifecycle import claimable, take_back_lost
from backend.runs.strays import Strays
from backend.searches.advance import advance
from backend.searches.store import active_searches
from backend.settings import Settings
from backend.trials.store import due_trials, settle
from backend.workers.store import live_slots

logger = logging.getLogger(__name__)

NAME = "reconciler"
LOOK_SECONDS = 1.0
LEASE_SECONDS = 5.0
DELETION_SECONDS = 0.5
"""So long a look removes what was deleted permanently; the next one goes on."""
DELETION_PAUSE_SECONDS = 30.0
SWEEP_SECONDS = 0.2
"""So long a look goes through the runs' files; the next one goes on."""
SWEEP_DELAY_SECONDS = 60.0
SWEEP_PAUSE_SECONDS = 3600.0
BUDGET_SECONDS = 0.2
"""So long a look removes token values beyond their budget; the next one goes on."""
BUDGET_PAUSE_SECONDS = 60.0
PACK_SECONDS = 0.1
"""So long a look packs points; the next one goes on."""
PACK_PAUSE_SECONDS = 5.0
CONVERT_SECONDS = 0.25
"""So long a look packs completions of earlier versions; the next one goes on."""
CONVERT_PAUSE_SECONDS = 60.0
INDEX_SECONDS = 0.25
"""So long a look indexes completions for search; the next one goes on."""
INDEX_PAUSE_SECONDS = 2.0
TRIAL_PAUSE_SECONDS = 5.0
"""How often trials are looked at; each look judges one."""
SEARCH_PAUSE_SECONDS = 2.0
"""How often searches are looked at; each look goes on with one."""
SEARCH_STEPS = 8
"""Steps of a search in one look."""
FAULTS = (ArithmeticError, AttributeError, GrpoLabError, LookupError, TypeError, ValueError)
"""Errors that no test has met: one trial or search must not keep the others from theirs."""
JUDGE_SECONDS = 0.1
"""So long a look diagnoses runs; the next one goes on."""
JUDGE_PAUSE_SECONDS = 5.0
MARK_SECONDS = 10.0
"""How often the high-water mark of the database is raised."""


class Reconciler:
    """One thread that looks every second."""

    def __init__(self, settings: Settings, sessions: Sessions) -> None:
        self._settings = settings
        self._sessions = sessions
        self._lost = LostRuns(settings.lease_seconds, look_seconds=LOOK_SECONDS)
        self._clock = ClockWatch()
        self._delete_after = 0.0
        self._strays = Strays(settings, sessions)
        self._sweep: Iterator[None] = self._strays.sweep()
        self._sweep_after = time.monotonic() + SWEEP_DELAY_SECONDS
        self._budget = TokenBudget(settings, sessions)
        self._budgeting: Iterator[None] = self._budget.sweep()
        self._budget_after = time.monotonic() + BUDGET_PAUSE_SECONDS
        self._packing: Iterator[None] | None = None
        self._pack_after = 0.0
        self._converting: Iterator[None] | None = None
        self._convert_after = 0.0
        self._indexing: Iterator[None] | None = None
        self._index_after = 0.0
        self._trials: list[str] = []
        self._refused_trials: set[str] = set()
        self._trials_after = 0.0
        self._searches: list[str] = []
        self._refused_searches: set[str] = set()
        self._searches_after = 0.0
        self._judging: Iterator[None] | None = None
        self._judge_after = 0.0
        self._mark_after = 0.0
        self._owner = uuid.uuid4().hex
        self._looked_at = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)

    @property
    def age_seconds(self) -> float:
        """Time since the last look that succeeded, or since the start."""
        return time.monotonic() - self._looked_at

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End, after the look that is under way."""
        self._stopping.set()
        self._thread.join(5)

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            try:
                self.look()
                self._looked_at = time.monotonic()
            except SQLAlchemyError as error:
                self._lost.forget()
                logger.warning("the reconciler failed: %s", str(error).splitlines()[0])
            except Exception:  # a stranger's rows may hold what no test has met: the next look goes on
                self._lost.forget()
                logger.exception("the reconciler failed")

    def look(self) -> int:
        """One round; returns how often the bell was rung."""
        with reading(self._sessions) as session:
            clock = self._clock.look(session)
            rings = _rings_wanted(session)
            lost = self._lost.look(session)
            is_deleting = session.scalar(select(Run.id).where(Run.deleting_at.is_not(None)).limit(1))
            self._look_for_points(session)
            self._look_for_unconverted(session)
            self._look_for_unindexed(session)
            self._look_for_trials(session)
            self._look_for_searches(session)
            self._look_for_unjudged(session)
            if time.monotonic() > self._mark_after:
                raise_mark(self._settings, session)
                self._mark_after = time.monotonic() + MARK_SECONDS
        is_odd = bool(clock.jump) or clock.went_back
        is_sweeping = time.monotonic() > self._sweep_after
        is_budgeting = time.monotonic() > self._budget_after
        jobs = (self._packing, self._converting, self._indexing, self._trials, self._searches, self._judging)
        is_busy = any(jobs)
        damage = noticed()
        if not (rings or lost or is_deleting or is_odd or is_sweeping or is_budgeting or is_busy or damage):
            return 0
        with self._sessions.begin() as session:
            if not take_lease(session, NAME, self._owner, seconds=LEASE_SECONDS):
                self._clock.settled(clock)  # by whoever has the lease
                return 0
            if is_odd:
                self._set_right(session, clock)
            if taken := take_back_lost(session, lost):
                logger.warning("took back runs whose worker was lost: %s", ", ".join(taken))
            tell_damage(session, damage.items())
        told(damage)
        self._clock.settled(clock)
        for _ in range(rings):
            if not ring(self._settings):
                break
        if is_deleting:
            self._delete()
        if is_sweeping:
            self._go_on_sweeping()
        if is_budgeting:
            self._go_on_budgeting()
        self._go_on_with_upkeep()
        return rings

    def _go_on_with_upkeep(self) -> None:
        """A piece of each of the longer jobs that were found."""
        if self._packing:
            self._go_on_packing(self._packing)
        if self._converting:
            self._go_on_converting(self._converting)
        if self._indexing:
            self._go_on_indexing(self._indexing)
        if self._trials:
            self._settle(self._trials.pop(0))
        if self._searches:
            self._search(self._searches.pop(0))
        if self._judging:
            self._go_on_judging(self._judging)

    def _set_right(self, session: Session, clock: Look) -> None:
        if clock.jump:
            logger.warning("%s", tell(session, clock.jump))
        if clock.went_back:
            mend(session, clock, lease_seconds=self._settings.lease_seconds)

    def _delete(self) -> None:
        """Go on with deletions; where files cannot be removed, the next try waits a while."""
        if time.monotonic() < self._delete_after:
            return
        try:
            carry_on(self._sessions, self._settings, seconds=DELETION_SECONDS)
        except (OSError, ArtifactFault) as error:
            self._delete_after = time.monotonic() + DELETION_PAUSE_SECONDS
            logger.warning("files of a deleted run cannot be removed: %s", error)

    def _go_on_sweeping(self) -> None:
        """A piece of the hourly look through the runs' files."""
        until = time.monotonic() + SWEEP_SECONDS
        try:
            for _ in self._sweep:
                if time.monotonic() > until:
                    return
        except OSError as error:
            logger.warning("cannot check the files of the runs: %s", error)
        self._sweep = self._strays.sweep()
        self._sweep_after = time.monotonic() + SWEEP_PAUSE_SECONDS

    def _go_on_budgeting(self) -> None:
        """A piece of the look at the bytes of token values."""
        until = time.monotonic() + BUDGET_SECONDS
        for _ in self._budgeting:
            if time.monotonic() > until:
                return
        self._budgeting = self._budget.sweep()
        self._budget_after = time.monotonic() + BUDGET_PAUSE_SECONDS

    def _look_for_points(self, session: Session) -> None:
        """Every few seconds: whether there are points to pack."""
        if self._packing is None and time.monotonic() > self._pack_after:
            self._pack_after = time.monotonic() + PACK_PAUSE_SECONDS
            if tasks := packable(session):
                self._packing = pack(self._sessions, tasks, tell_block)

    def _look_for_trials(self, session: Session) -> None:
        """Every few seconds: trials whose runs have all ended."""
        if not self._trials and time.monotonic() > self._trials_after:
            self._trials_after = time.monotonic() + TRIAL_PAUSE_SECONDS
            self._trials = [trial for trial in due_trials(session) if trial not in self._refused_trials]

    def _settle(self, trial: str) -> None:
        try:
            settle(self._sessions, trial)
        except OSError as error:
            logger.warning("trial %s is judged later: %s", trial, error)
        except FAULTS:
            self._refused_trials.add(trial)
            logger.exception("trial %s cannot be judged", trial)

    def _look_for_searches(self, session: Session) -> None:
        """Every few seconds: searches that go on."""
        if not self._searches and time.monotonic() > self._searches_after:
            self._searches_after = time.monotonic() + SEARCH_PAUSE_SECONDS
            found = active_searches(session)
            self._searches = [each for each in found if each not in self._refused_searches]

    def _search(self, experiment: str) -> None:
        try:
            for _ in range(SEARCH_STEPS):
                if not advance(self._sessions, self._settings, experiment):
                    return
                ring(self._settings)
        except OSError as error:
            logger.warning("search %s goes on later: %s", experiment, error)
        except FAULTS:
            self._refused_searches.add(experiment)
            logger.exception("search %s cannot go on", experiment)

    def _go_on_packing(self, packing: Iterator[None]) -> None:
        """A piece of what there is to pack."""
        until = time.monotonic() + PACK_SECONDS
        for _ in packing:
            if time.monotonic() > until:
                return
        self._packing = None

    def _look_for_unconverted(self, session: Session) -> None:
        """Every minute: whether there are completions in rows, as earlier versions stored them."""
        if self._converting is None and time.monotonic() > self._convert_after:
            self._convert_after = time.monotonic() + CONVERT_PAUSE_SECONDS
            if is_unconverted(session):
                self._converting = convert(self._sessions)

    def _go_on_converting(self, converting: Iterator[None]) -> None:
        """A piece of what there is to pack."""
        until = time.monotonic() + CONVERT_SECONDS
        for _ in converting:
            if time.monotonic() > until:
                return
        self._converting = None

    def _look_for_unindexed(self, session: Session) -> None:
        """Every few seconds: whether there are completions that search does not know."""
        if self._indexing is None and time.monotonic() > self._index_after:
            self._index_after = time.monotonic() + INDEX_PAUSE_SECONDS
            if unindexed(session):
                self._indexing = index_groups(self._sessions)

    def _go_on_indexing(self, indexing: Iterator[None]) -> None:
        """A piece of what there is to index."""
        until = time.monotonic() + INDEX_SECONDS
        for _ in indexing:
            if time.monotonic() > until:
                return
        self._indexing = None

    def _look_for_unjudged(self, session: Session) -> None:
        """Every few seconds: whether there are runs without a verdict."""
        if self._judging is None and time.monotonic() > self._judge_after:
            self._judge_after = time.monotonic() + JUDGE_PAUSE_SECONDS
            if runs := unjudged(session):
                self._judging = judge_runs(self._sessions, runs)
                self._judge_after = 0.0  # there may be more

    def _go_on_judging(self, judging: Iterator[None]) -> None:
        """A piece of what there is to judge."""
        until = time.monotonic() + JUDGE_SECONDS
        for _ in judging:
            if time.monotonic() > until:
                return
        self._judging = None


def take_lease(session: Session, name: str, owner: str, *, seconds: float) -> bool:
    """Be, or stay, the one who does a job.

    A lease that lasts longer than any that could be given now is of a time before the clock went back.
    """
    is_over = or_(Singleton.until < db_now(), Singleton.until > db_now() + max(seconds, LEASE_SECONDS))
    free = update(Singleton).where(Singleton.name == name, or_(Singleton.owner == owner, is_over))
    mine = free.values(owner=owner, until=db_now() + seconds).returning(Singleton.name)
    if session.scalar(mine) is not None:
        return True
    row = insert_into(session, Singleton).values(name=name, owner=owner, until=db_now() + seconds)
    return session.scalar(row.on_conflict_do_nothing().returning(Singleton.name)) is not None


def _rings_wanted(session: Session) -> int:
    """One ring for each run that waits and has a free place."""
    waiting = session.scalar(select(func.count()).select_from(Run).where(claimable(), Run.wish == "")) or 0
    if not waiting:
        return 0
    idle = sum(1 for slot in live_slots(session) if slot.run_id is None)
    return min(waiting, idle)
