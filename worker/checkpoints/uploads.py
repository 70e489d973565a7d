"""Uploads of a run's checkpoints to the artifact store, one at a time, during training."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from backend.storage.artifacts.names import checkpoint_age_key
from backend.storage.artifacts.store import ArtifactFault, ArtifactStore, BadCopy
from worker.checkpoints.files import BadCheckpoint
from worker.recording.recorder import Recorder

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 120.0
"""Seconds for which a run retries required downloads and its last uploads."""

PAUSE_SECONDS = 5.0

WATCH_SECONDS = 1.0

Result = TypeVar("Result")


class Uploads:
    """The copies of one run's checkpoints in the artifact store. Without a store it does nothing."""

    def __init__(self, store: ArtifactStore | None, run_id: str, recorder: Recorder) -> None:
        self._store, self._run_id, self._recorder = store, run_id, recorder
        self._complete: set[str] = set()
        self._partial: set[str] = set()
        self._doomed_names: frozenset[str] = frozenset()
        self._upload: Future[None] | None = None
        self._at_work: frozenset[str] = frozenset()
        self._is_away = False

    def read_complete(self) -> set[str]:
        """Read the names of this run's complete checkpoints in the store and return them. Raise
        ArtifactFault.
        """
        if self._store is not None:
            self._retry(lambda store: store.try_out())
            listing = self._retry(lambda store: store.list_copies(self._run_id))
            self._complete = {name for name, is_complete in listing.items() if is_complete}
            self._partial = listing.keys() - self._complete
        return self.complete

    @property
    def are_wanted(self) -> bool:
        """True if there is a store."""
        return self._store is not None

    @property
    def complete(self) -> set[str]:
        """The names of the complete checkpoints in the store."""
        return set(self._complete)

    @property
    def uploading(self) -> frozenset[str]:
        """The names of checkpoints that are being uploaded, whose directories must stay."""
        return self._at_work

    def fetch(self, directory: Path, *, replace_existing: bool = False) -> bool:
        """Download a checkpoint unless it is on this machine, and return whether it was downloaded.

        Raise BadCheckpoint if the copy is invalid, ArtifactFault, or OSError of this machine's disk.
        """
        if self._store is None or (directory.is_dir() and not replace_existing):
            return False
        try:
            is_fetched = self._retry(lambda store: store.fetch(directory, replace_existing=replace_existing))
        except BadCopy as error:
            raise BadCheckpoint(directory, error.detail) from error
        if is_fetched:
            logger.info("fetched checkpoint %s from %s", directory.name, self._store.url)
        return is_fetched

    def replace(self, name: str) -> None:
        """Mark the copy of this name as incomplete, because another checkpoint is about to be written."""
        if name in self._complete:
            self._complete.discard(name)
            self._partial.add(name)

    def start(self, directories: Sequence[Path]) -> None:
        """Upload the checkpoints that the store lacks, and remove forgotten copies.

        While an upload is running, nothing is started until the next call.
        """
        if self._store is None:
            return
        if self._upload is not None and not self._upload.done():
            return
        self._take_note()
        missing_directories = [
            directory
            for directory in directories
            if directory.name not in self._complete and directory.is_dir()
        ]
        doomed, self._doomed_names = self._doomed_names, frozenset()
        if missing_directories or doomed:
            self._at_work = frozenset(directory.name for directory in missing_directories)
            self._complete -= doomed
            self._partial |= self._at_work | doomed
            self._upload = _run_in_thread(partial(self._work, self._store, missing_directories, doomed))

    def settle(self) -> None:
        """Wait for a running upload, whose duration the store limits."""
        if self._upload is not None:
            self._watch(self._upload)
            self._take_note()

    def finish(self, directories: Sequence[Path]) -> bool:
        """Upload missing checkpoints with retries, and return whether the store has all of them now.

        Checkpoints that are only on this machine are reported.
        """
        if self._store is None:
            return False
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            self.settle()
            self.start(directories)
            self.settle()
            missing_names = [
                directory.name
                for directory in directories
                if directory.name not in self._complete and directory.is_dir()
            ]
            if not missing_names:
                return True
            if time.monotonic() > deadline:
                break
            self._sleep(PAUSE_SECONDS)
        remedy = f"once {self._store.url} answers: grpolab copy-checkpoints {self._run_id}"
        message = f"on this machine only: {', '.join(missing_names)}; copy it {remedy}"
        self._recorder.event("checkpoint", "error", message)
        return False

    def forget(self, kept_names: Collection[str], may_go: Callable[[str], bool]) -> None:
        """Mark copies without a row, so that the next call of `start` removes them."""
        names = self._complete | self._partial
        self._doomed_names = frozenset(name for name in names if name not in kept_names and may_go(name))

    def _work(
        self, store: ArtifactStore, missing_directories: Sequence[Path], doomed_names: Collection[str]
    ) -> None:
        for directory in sorted(
            missing_directories, key=lambda directory: checkpoint_age_key(directory.name), reverse=True
        ):
            started_at = time.monotonic()
            store.upload(directory)
            self._complete.add(directory.name)
            logger.info("uploaded checkpoint %s in %.1f s", directory.name, time.monotonic() - started_at)
        for name in sorted(doomed_names):
            try:
                store.remove_checkpoint(self._run_id, name)
            except ArtifactFault as error:  # retried after the next checkpoint
                logger.warning("%s", error.detail)
                return
            self._partial.discard(name)

    def _take_note(self) -> None:
        """Report a fault once until the store answers again."""
        future, self._upload, self._at_work = self._upload, None, frozenset()
        if future is None:
            return
        error = future.exception()
        if error is None:
            if self._is_away:
                message = "checkpoints are copied to the artifact store again"
                self._recorder.event("checkpoint", "info", message)
            self._is_away = False
        elif not isinstance(error, ArtifactFault):
            raise error
        elif not self._is_away:
            self._is_away = True
            next_try = "the copy is tried again with the next checkpoint"
            message = f"a checkpoint is on this machine only: {error.detail}; {next_try}"
            self._recorder.event("checkpoint", "warning", message)

    def _retry(self, call: Callable[[ArtifactStore], Result]) -> Result:
        """Call the store with retries for a while. An invalid copy is not retried."""
        store = self._store
        assert store is not None  # noqa: S101 - the callers have checked
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            future = _run_in_thread(partial(call, store))
            self._watch(future)
            error = future.exception()
            is_fault = isinstance(error, ArtifactFault) and not isinstance(error, BadCopy)
            if not is_fault or time.monotonic() > deadline:
                return future.result()
            logger.warning("%s; trying again in %g s", error, PAUSE_SECONDS)
            self._sleep(PAUSE_SECONDS)

    def _watch(self, future: Future[Any]) -> None:
        """Wait until an upload is done, and report to the hang detector meanwhile."""
        while wait([future], timeout=WATCH_SECONDS).not_done:
            self._recorder.show_life()

    def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0:
            self._recorder.show_life()
            time.sleep(min(remaining, WATCH_SECONDS))


def _run_in_thread(call: Callable[[], Result]) -> Future[Result]:
    """Run a call in a daemon thread and return its future."""
    future: Future[Result] = Future()

    def run_call() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 - re-raised when the result is awaited
            future.set_exception(error)

    threading.Thread(target=run_call, name="uploads", daemon=True).start()
    return future
