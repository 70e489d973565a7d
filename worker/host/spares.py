"""Start trainers without delay, as a spare per slot or from a warm parent that forks those of all slots.

Importing torch and transformers takes seconds and about 300 MB. A spare has imported them and waits for a
run. The trainers of CPU slots are forks of one parent instead, which share its memory. A process that has
used CUDA cannot be forked, and an import may use CUDA unnoticed, so GPUs have spares.
"""

import logging
import os
import socket
import threading
import time
from collections.abc import Mapping, Sequence

from backend.base.settings import Settings
from backend.runs.workers.devices import Slot
from worker.host.forked import ForkedProcess
from worker.host.trainer_process import TRAINER, TrainerProcess, start_trainer, trainer_environment

logger = logging.getLogger(__name__)

PAUSES_SECONDS = (1.0, 5.0, 20.0, 60.0)
"""Pauses in seconds before the next start, by the number of consecutive failed starts."""


class Spare:
    """A trainer that has imported everything and waits for its run. It is replaced when it gets one."""

    def __init__(self, settings: Settings, slot: Slot, argv: tuple[str, ...] = TRAINER) -> None:
        self._argv = argv
        self._environment = trainer_environment(settings, slot, os.environ)
        self._failed_starts = 0
        self._not_before = 0.0
        self._process: TrainerProcess | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    @property
    def is_ready(self) -> bool:
        """True if a trainer starts now without waiting for imports."""
        process = self._process
        return process is not None and process.ready.is_set() and process.is_running()

    def keep(self) -> None:
        """Start a spare if there is none, with increasing pauses while starts fail."""
        with self._lock:
            if self._is_closed or time.monotonic() < self._not_before:
                return
            if self._process is not None and self._process.is_running():
                self._failed_starts = 0 if self._process.ready.is_set() else self._failed_starts
                return
            self._drop_dead()
            self._not_before = time.monotonic() + self._next_pause()
            try:
                self._process = self._start()
            except OSError as error:
                logger.warning("cannot start a spare trainer: %s", error)

    def take(self, environment: Mapping[str, str]) -> TrainerProcess:
        """Return the spare, or a trainer that starts now. Raise OSError."""
        with self._lock:
            spare, self._process = self._process, None
            if spare is not None and spare.ready.is_set():
                self._failed_starts, self._not_before = 0, 0.0
        if spare is not None and spare.is_running():
            return spare
        if spare is not None:
            spare.kill()
        return start_trainer(self._argv, environment)

    def close(self) -> None:
        """End the spare permanently."""
        with self._lock:
            self._is_closed = True
            self._drop_dead()

    def _start(self) -> TrainerProcess:
        return start_trainer(self._argv, self._environment)

    def _drop_dead(self) -> None:
        spare, self._process = self._process, None
        if spare is not None:
            spare.kill()  # The spare may have ended, but its children and pipes may not.

    def _next_pause(self) -> float:
        """Return the seconds to wait after this start if it fails."""
        pause = PAUSES_SECONDS[min(self._failed_starts, len(PAUSES_SECONDS) - 1)]
        self._failed_starts += 1
        return pause


class WarmParent(Spare):
    """A process whose forks are the trainers of all slots of a worker."""

    _requests: socket.socket | None = None

    @staticmethod
    def suits(slots: Sequence[Slot], argv: tuple[str, ...]) -> bool:
        """Return whether trainers of these slots can be forks."""
        return argv == TRAINER and hasattr(os, "pidfd_open") and not any(slot.gpu for slot in slots)

    def take(self, environment: Mapping[str, str]) -> TrainerProcess:
        """Return a fork, or a trainer that imports everything if there is no parent. Raise OSError."""
        with self._lock:
            if self.is_ready and self._requests is not None:
                try:
                    forked = ForkedProcess(self._requests, environment)
                except OSError as error:
                    logger.warning("the parent of trainers cannot fork: %s", error)
                    self._drop_dead()
                else:
                    self._bad, self._not_before = 0, 0.0
                    return TrainerProcess(forked)
        return start_trainer(TRAINER, environment)

    def _start(self) -> TrainerProcess:
        our_end, parent_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with parent_end:
            argv = (*TRAINER, "--forks", str(parent_end.fileno()))
            parent = start_trainer(argv, self._environment, inherited=[parent_end.fileno()])
        self._requests = our_end
        return parent

    def _drop_dead(self) -> None:
        super()._drop_dead()
        if self._requests is not None:
            self._requests.close()
            self._requests = None
