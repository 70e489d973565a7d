"""Uploads of a run's checkpoints to the artifact store, one at a time, while the run trains on."""

import logging
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, TypeVar

from backend.artifacts.store import ArtifactFault, ArtifactStore
from worker.recording.recorder import Recorder

logger = logging.getLogger(__name__)

PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""Seconds before each further try of what a run cannot go on without."""

WATCH_SECONDS = 1.0

Result = TypeVar("Result")


class Uploads:
    """The copies of one run's checkpoints in the artifact store; without a store it does nothing."""

    def __init__(self, store: ArtifactStore | None, run_id: str, recorder: Recorder) -> None:
        self._store, self._run_id, self._recorder = store, run_id, recorder
        self._complete: set[str] = set()
        self._partial: set[str] = set()
        self._pool = ThreadPoolExecutor(1, "uploads")
        self._running: Future[None] | None = None
        self._is_away = False

    def begin(self) -> set[str]:
        """Look at what the store has of this run: names of complete checkpoints. Raises ArtifactFault."""
        if self._store is not None:
            self._patiently(lambda store: store.try_out())
            listing = self._patiently(lambda store: store.listing(self._run_id))
            self._complete = {name for name, is_complete in listing.items() if is_complete}
            self._partial = listing.keys() - self._complete
        return self.complete

    @property
    def complete(self) -> set[str]:
        """Names of the complete checkpoints in the store."""
        return set(self._complete)

    @property
    def are_wanted(self) -> bool:
        """Whether there is a store."""
        return self._store is not None

    def fetch(self, directory: Path) -> bool:
        """Bring a checkpoint to this machine, unless it is there; whether it was brought.

        Raises ArtifactFault, and OSError of this machine's disk.
        """
        if self._store is None or directory.is_dir():
            return False
        found = self._patiently(lambda store: store.fetch(directory))
        if found:
            logger.info("fetched checkpoint %s from %s", directory.name, self._store.url)
        return found

    def start(self, directories: Sequence[Path]) -> None:
        """Upload those that the store lacks, after a running upload has ended."""
        if self._store is None:
            return
        self.settle()
        lacking = [each for each in directories if each.name not in self._complete and each.is_dir()]
        if lacking:
            self._running = self._pool.submit(self._upload, self._store, lacking)

    def settle(self) -> None:
        """Wait for a running upload; tell of a fault once, until the store answers again."""
        running, self._running = self._running, None
        if running is None:
            return
        self._watch(running)
        error = running.exception()
        if error is None:
            if self._is_away:
                self._recorder.event(
                    "checkpoint", "info", "checkpoints are copied to the artifact store again"
                )
            self._is_away = False
        elif not isinstance(error, ArtifactFault):
            raise error
        elif not self._is_away:
            self._is_away = True
            then = "the copy is tried again with the next checkpoint"
            message = f"a checkpoint is on this machine only: {error.detail}; {then}"
            self._recorder.event("checkpoint", "warning", message)

    def finish(self, directories: Sequence[Path]) -> bool:
        """Upload what is lacking, trying again for a while; whether the store has everything now.

        What stays on this machine only is told.
        """
        if self._store is None:
            return False
        for pause in (*PAUSES, 0.0):
            self.start(directories)
            self.settle()
            if not self._is_away:
                return True
            self._sleep(pause)
        lacking = ", ".join(each.name for each in directories if each.name not in self._complete)
        remedy = f"once {self._store.url} answers: python -m backend.cli copy-checkpoints {self._run_id}"
        self._recorder.event("checkpoint", "error", f"on this machine only: {lacking}; copy it {remedy}")
        return False

    def forget(self, kept: Collection[str], may_go: Callable[[str], bool]) -> None:
        """Remove the copies that no row has any more."""
        for name in sorted(self._complete | self._partial):
            if self._store is None or name in kept or not may_go(name):
                continue
            try:
                self._store.remove_checkpoint(self._run_id, name)
            except ArtifactFault as error:  # tried again after the next checkpoint
                logger.warning("%s", error.detail)
                return
            self._complete.discard(name)
            self._partial.discard(name)

    def _upload(self, store: ArtifactStore, directories: Sequence[Path]) -> None:
        for directory in directories:
            began = time.monotonic()
            store.upload(directory)
            self._complete.add(directory.name)
            logger.info("uploaded checkpoint %s in %.1f s", directory.name, time.monotonic() - began)

    def _patiently(self, call: Callable[[ArtifactStore], Result]) -> Result:
        """What the run needs from the store; a fault gets a minute or two to pass."""
        store = self._store
        assert store is not None  # noqa: S101 - the callers have looked
        for pause in PAUSES:
            try:
                return self._await(self._pool.submit(call, store))
            except ArtifactFault as error:
                logger.warning("%s; trying again in %g s", error.detail, pause)
                self._sleep(pause)
        return self._await(self._pool.submit(call, store))

    def _await(self, future: Future[Result]) -> Result:
        self._watch(future)
        return future.result()

    def _watch(self, future: Future[Any]) -> None:
        """Wait until it is done, while the hang detector sees life."""
        while wait([future], timeout=WATCH_SECONDS).not_done:
            self._recorder.show_life()

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            self._recorder.show_life()
            time.sleep(min(left, WATCH_SECONDS))
