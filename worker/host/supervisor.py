"""The supervisor of a slot, which manages the trainer process of each claimed run: lease, output and end.

Exit codes of a trainer:

    0     it has written its outcome to SQL itself
    75    its supervisor has ended
    76    fenced: another attempt owns the run
    else  it failed and reported the reason on its output
    -9..  a signal ended it, from outside (the run is requeued) or by its own fault
"""

import contextlib
import logging
import os
import signal
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from backend.base.errors import Fenced
from backend.base.logs import log_context
from backend.base.settings import Settings
from backend.runs import leases, lifecycle
from backend.runs.lifecycle import Claim
from backend.runs.store import append_log
from backend.runs.workers.devices import Slot
from backend.storage.engine import Sessions, db_now, open_read_session
from backend.storage.models import Run
from worker.db_retry import first_line, left_for_later, retry_transaction
from worker.host.hang_detector import HangDetector, HangLimits
from worker.host.spares import Spare
from worker.host.trainer_logs import FLUSH_SECONDS, LogCollector
from worker.host.trainer_process import TrainerProcess, trainer_environment
from worker.out_of_memory import oom_kills, used_text
from worker.outcome import EXIT_FENCED, EXIT_ORPHANED

logger = logging.getLogger(__name__)

GRACE_SECONDS = 30.0
"""Seconds that a trainer gets to save a checkpoint after it was asked to stop."""

COPY_GRACE_SECONDS = 100.0
"""Seconds that a trainer gets to save and copy a checkpoint. Clusters give pilots 120 seconds."""

START_PAUSE_SECONDS = 20.0
"""Seconds until a run for which no process could be started is retried."""

LEAVE_SECONDS = 10.0
"""Seconds that a trainer gets to end after its run has ended."""

DUMP_SECONDS = 2.0
"""Seconds that a hung trainer gets to print its stacks."""

HUNG_CODE = -1000
"""Value used instead of the exit code of a trainer that was ended because it hung."""

SPARE_DELAY_SECONDS = 5.0
"""Seconds after a run's start until the next spare starts importing, so that it does not slow the first
steps.
"""

OUTSIDE_SIGNALS = {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT}
"""Signals that come from outside. SIGSEGV or SIGABRT, in contrast, are caused by the trainer itself."""


RETRY_SECONDS = 1.0
"""Seconds until a failed lease renewal is retried. It is short because the lease runs out."""

MAX_OOM_FAILURES = 2
"""Number of failures for lack of memory after which a run fails. It is retried once."""

KILLED_PAUSE_SECONDS = 1.0
"""Seconds until a run whose trainer was killed from outside starts again."""


class Verdict(NamedTuple):
    """The reason why a trainer ended without writing an outcome."""

    reason: str
    is_own_fault: bool = True
    """True if the failure counts against the run's retries."""
    limit: int = lifecycle.MAX_FAILURES
    """Maximum number of consecutive failures of the run itself, at which it fails."""
    pause_seconds: float = KILLED_PAUSE_SECONDS
    """Seconds until the run starts again after a failure that it did not cause."""


class Supervisor:
    """Manages the trainers of one slot: the active one and a spare that has imported everything already."""

    def __init__(
        self,
        settings: Settings,
        sessions: Sessions,
        slot: Slot,
        stopping: threading.Event,
        *,
        spare: Spare | None = None,
        hang_limits: HangLimits | None = None,
        hurrying: threading.Event | None = None,
        lead: dict[str, Any] | None = None,
    ) -> None:
        """Create a supervisor.

        `stopping` asks a trainer to save and end. `hurrying`, set later, ends it immediately. `spare`
        provides its trainers. `lead` is the seat of a worker that leads a group of nodes.
        """
        self._lead = lead
        self._settings = settings
        self._sessions = sessions
        self._slot = slot
        self._stopping = stopping
        self._hurrying = hurrying or threading.Event()
        self._hang_limits = hang_limits or HangLimits()
        self._spare = spare or Spare(settings, slot)

    @property
    def spare_is_ready(self) -> bool:
        """True if a run that is given to this slot now starts without waiting for imports."""
        return self._spare.is_ready

    def keep_spare(self) -> None:
        """Ensure that the next trainer does not have to wait for imports."""
        if not self._stopping.is_set():
            self._spare.keep()

    def close(self) -> None:
        """End the spare."""
        self._spare.close()

    def take_trainer(self) -> TrainerProcess:
        """Return a trainer that is ready or will be ready soon. Raise OSError."""
        return self._spare.take(trainer_environment(self._settings, self._slot, os.environ))

    def supervise(self, claim: Claim, gpus: Sequence[str] = ()) -> None:
        """Supervise a trainer from its assignment until it ends, and set the run's next status.

        `gpus` are the GPUs of all ranks of the run.
        """
        with log_context(run_id=claim.run_id, attempt=claim.attempt):
            self._supervise(claim, gpus)

    def _supervise(self, claim: Claim, gpus: Sequence[str]) -> None:
        try:
            trainer = self.take_trainer()
        except OSError as error:
            reason = f"no trainer could be started: {error}"
            logger.warning("%s", reason)
            self._settle(claim, Verdict(reason, is_own_fault=False, pause_seconds=START_PAUSE_SECONDS))
            return
        self._see_through(trainer, claim, gpus)

    def _see_through(self, trainer: TrainerProcess, claim: Claim, gpus: Sequence[str]) -> None:
        kills = oom_kills()
        log = LogCollector(lambda number, text: self._append_log(claim, number, text))
        database_url = self._settings.effective_database_url
        trainer.assign(
            claim.run_id,
            claim.attempt,
            self._slot,
            log.add,
            database_url=database_url,
            gpus=gpus,
            node=self._lead,
        )
        logger.info("trainer %s", trainer.pid)
        self._note_trainer(claim, trainer.pid)
        progress = HangDetector(self._hang_limits)
        try:
            code = self._watch(trainer, claim, log, progress)
        finally:
            trainer.kill()  # its session, with all remaining processes
        self._flush(log)
        logger.info("trainer %s ended with %s", trainer.pid, code)
        if code == HUNG_CODE:
            verdict = Verdict(f"hung: no step for {progress.silent_seconds:.0f} s")
        else:
            verdict = self.judge(trainer, code, is_oom=oom_kills() > kills)
        self._settle(claim, verdict)

    def _watch(self, trainer: TrainerProcess, claim: Claim, log: LogCollector, progress: HangDetector) -> int:
        lease = self._settings.lease_seconds
        started_at = time.monotonic()
        renew_at, flush_at, kill_at = started_at, started_at, float("inf")
        while (code := trainer.wait(0.05)) is None:
            now = time.monotonic()
            if now >= renew_at:
                try:
                    is_answered = self._renew(claim, progress)
                except Fenced:
                    return self._leave(trainer, claim)
                renew_at = now + (lease / 4 if is_answered else RETRY_SECONDS)
            if now >= flush_at or log.is_full:
                flush_at = now + FLUSH_SECONDS
                trainer.see_memory()
                self._flush(log)
            if progress.is_hung:
                self._end_hung(trainer, log)
                return HUNG_CODE
            if self._stopping.is_set() and kill_at == float("inf"):
                trainer.ask_to_stop()
                kill_at = now + (COPY_GRACE_SECONDS if self._settings.artifacts_url else GRACE_SECONDS)
            if now >= kill_at or (self._hurrying.is_set() and kill_at < float("inf")):
                trainer.kill()
            if now - started_at > SPARE_DELAY_SECONDS:
                self.keep_spare()
        return code

    def _leave(self, trainer: TrainerProcess, claim: Claim) -> int:
        """Wait until a trainer ends that has lost its run or written its outcome."""
        status = None
        with left_for_later("see why the lease is over"), open_read_session(self._sessions) as session:
            query = select(Run.status).where(Run.id == claim.run_id, Run.attempt == claim.attempt)
            status = session.scalar(query)
        code = trainer.wait(LEAVE_SECONDS) if status in (*lifecycle.ENDED_STATUSES, "paused") else None
        return EXIT_FENCED if code is None else code

    def _renew(self, claim: Claim, progress: HangDetector) -> bool:
        """Renew the lease and read the progress. Return False if the database is unavailable. Raise
        Fenced.
        """
        lease, run_id = self._settings.lease_seconds, claim.run_id
        try:
            with self._sessions.begin() as session:
                leases.renew_lease(session, run_id, claim.attempt, owner=claim.worker_id, lease_seconds=lease)
                step = session.execute(select(Run.last_step, Run.progress_at).where(Run.id == run_id)).one()
        except SQLAlchemyError as error:
            logger.warning("cannot renew the lease: %s", first_line(error))
            progress.reset_silence()  # the steps cannot be stored either
            return False
        progress.observe_progress(step.last_step, step.progress_at)
        return True

    def _end_hung(self, trainer: TrainerProcess, log: LogCollector) -> None:
        """End a hung trainer after it has printed its stacks to the log."""
        trainer.dump_stacks()
        trainer.wait(DUMP_SECONDS)
        trainer.kill()
        self._flush(log)

    def _note_trainer(self, claim: Claim, pid: int) -> None:
        with left_for_later("note the trainer's process"), self._sessions.begin() as session:
            lifecycle.note_attempt(session, claim.run_id, claim.attempt, pid=pid, device=self._slot.device)

    def _append_log(self, claim: Claim, number: int, text: str) -> None:
        with self._sessions.begin() as session:
            append_log(session, claim.run_id, claim.attempt, number, text)

    def _flush(self, log: LogCollector) -> None:
        with left_for_later("store output"):
            log.flush()

    def judge(self, trainer: TrainerProcess, code: int, *, is_oom: bool) -> Verdict:
        """Return the verdict on an exit code for a run that the trainer has left unfinished."""
        if code < 0 and -code in OUTSIDE_SIGNALS and not (is_oom and -code == signal.SIGKILL):
            signal_reason = f"the trainer was ended by {signal.Signals(-code).name}"
            cause = ": its worker was asked to end" if self._stopping.is_set() else ""
            return Verdict(signal_reason + cause, is_own_fault=False)
        if code in (0, EXIT_ORPHANED, EXIT_FENCED):
            return Verdict("the trainer ended without a message", is_own_fault=code == 0)
        if code < 0 and is_oom:
            used = used_text(trainer.see_memory())
            reason = f"the machine ran out of memory and the kernel ended the trainer: {used}"
            return Verdict(reason, limit=MAX_OOM_FAILURES)
        if code < 0:
            return Verdict(
                f"the trainer crashed with {signal.Signals(-code).name}: {trainer.last_error_line}"
            )
        reason = (
            trainer.failure.get("reason") or trainer.last_error_line or f"the trainer ended with code {code}"
        )
        if trainer.failure.get("kind") == "lost":  # another node, not the run
            return Verdict(reason, is_own_fault=False)
        is_memory = trainer.failure.get("kind") == "memory"
        return Verdict(reason, limit=MAX_OOM_FAILURES if is_memory else lifecycle.MAX_FAILURES)

    def _settle(self, claim: Claim, verdict: Verdict) -> None:
        """Set the run's next status unless its trainer has set it, with retries while the database is
        unavailable.
        """
        # The run was finished or released by the trainer, or another attempt owns it.
        with contextlib.suppress(Fenced):
            retry_transaction(self._sessions, lambda session: self._move_on(session, claim, verdict))

    def _move_on(self, session: Session, claim: Claim, verdict: Verdict) -> None:
        run_id, attempt = claim.run_id, claim.attempt
        leases.fence(session, run_id, attempt, owner=claim.worker_id)
        if verdict.is_own_fault:
            lifecycle.fail_attempt(session, run_id, attempt, verdict.reason, limit=verdict.limit)
        else:
            pause = 0.0 if self._stopping.is_set() else verdict.pause_seconds
            leases.fence(session, run_id, attempt, run_after=db_now() + pause)
            lifecycle.release_run(session, run_id, attempt, verdict.reason)
