"""The checkpoints of one run: files first, then the row; the newest good one continues the run."""

import logging
import shutil
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from backend.models import Checkpoint
from backend.runs import checkpoints as store
from worker.disk import on_disk
from worker.policy.checkpoint import (
    MANIFEST,
    BadCheckpoint,
    load_checkpoint,
    remove_checkpoint,
    remove_drafts,
    save_checkpoint,
)
from worker.policy.model import Policy
from worker.recorder import Recorder
from worker.state import Parts

logger = logging.getLogger(__name__)


class Checkpoints:
    """Saves, prunes and restores the checkpoints under `root`, the run's own directory."""

    def __init__(self, root: Path, recorder: Recorder, *, run_id: str, attempt: int, keep: int) -> None:
        self.root, self.recorder, self.run_id, self.attempt, self.keep = root, recorder, run_id, attempt, keep
        self.saved_step = -1
        self.refused: set[str] = set()
        """Ids of checkpoints that turned out damaged: forgotten as soon as there is a new one."""

    def restore(self, policy: Policy, parts: Parts) -> int | None:
        """Put everything in the state of the newest checkpoint that is whole; its step, None without one.

        A damaged one is passed over with an event. Raises BadCheckpoint when all are damaged.
        """
        with on_disk(self.root):
            return self._restore(policy, parts)

    def _restore(self, policy: Policy, parts: Parts) -> int | None:
        remove_drafts(self.root)
        rows = self.recorder.read(lambda session: store.checkpoints_of(session, self.run_id))
        for row in rows:
            try:
                self._check_manifest(row)
                step = load_checkpoint(self.root / row.path, policy, parts)
            except BadCheckpoint as error:
                logger.warning("%s", error.detail)
                self.recorder.event("checkpoint", "error", f"refused: {error.detail}", step=row.step)
                self.refused.add(row.id)
                continue
            self.saved_step = step
            # The attempt that saved it may have died before it tidied up, and nothing may be left to save.
            self._remove_strangers({row.path for row in rows})
            self.recorder.event("checkpoint", "info", f"continued from step {step}", step=step)
            return step
        if rows:
            raise BadCheckpoint(self.root, f"none of the run's {len(rows)} checkpoints is whole")
        return None

    def save(self, policy: Policy, parts: Parts, *, step: int, accuracy: float | None) -> None:
        """Write a checkpoint of a step and forget the ones that are no longer kept.

        `accuracy` is what the policy reached on held-out problems at this very step, if it was measured.
        """
        if step == self.saved_step:
            return
        directory = self.root / f"s{step:06d}-a{self.attempt}"
        save_checkpoint(directory, policy, parts, step=step)
        manifest = (directory / MANIFEST).read_bytes()
        row = {
            "run_id": self.run_id,
            "step": step,
            "attempt": self.attempt,
            "path": directory.name,
            "sha256": sha256(manifest).hexdigest(),
            "bytes_total": sum(file.stat().st_size for file in directory.rglob("*") if file.is_file()),
            "manifest": _described(directory, accuracy),
        }
        self.recorder.commit(lambda session: store.add_checkpoint(session, row))
        self.saved_step = step
        with on_disk(self.root):
            self._prune()

    def _check_manifest(self, row: Checkpoint) -> None:
        manifest = self.root / row.path / MANIFEST
        if not manifest.is_file():
            raise BadCheckpoint(self.root / row.path, f"{MANIFEST} is missing")
        if sha256(manifest.read_bytes()).hexdigest() != row.sha256:
            raise BadCheckpoint(self.root / row.path, f"{MANIFEST} is not the one that was written")

    def _prune(self) -> None:
        """Remove rows beyond the newest `keep` and the best one, then their directories."""
        kept: set[str] = set()

        def forget(session: Session) -> None:
            kept.update(
                store.forget_old_checkpoints(session, self.run_id, keep=self.keep, damaged=self.refused)
            )

        self.recorder.commit(forget)
        self._remove_strangers(kept)

    def _remove_strangers(self, kept: Collection[str]) -> None:
        """Directories that belong to no row: of a forgotten checkpoint, or of a save that never ended."""
        for directory in self.root.iterdir():
            if directory.is_dir() and directory.name not in kept:
                remove_checkpoint(directory) if (directory / MANIFEST).is_file() else shutil.rmtree(directory)


def _described(directory: Path, accuracy: float | None) -> dict[str, Any]:
    files = sorted(file.relative_to(directory).as_posix() for file in directory.rglob("*") if file.is_file())
    return {"files": files, "accuracy": accuracy}
