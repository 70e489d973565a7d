"""The checkpoints of one run: files first, then the row; the newest good one continues the run."""

import logging
import re
import shutil
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path
from typing import Any

from sqlalchemy.orm import Session

from backend.config.run import RunConfig
from backend.runs import checkpoints as store
from worker.disk import on_disk
from worker.fork import Origin, fitting
from worker.policy.checkpoint import (
    MANIFEST,
    BadCheckpoint,
    Loaded,
    load_checkpoint,
    load_weights,
    remove_checkpoint,
    remove_drafts,
    save_checkpoint,
    verify_checkpoint,
    versions,
)
from worker.policy.model import Policy
from worker.recorder import Recorder
from worker.state import Parts

logger = logging.getLogger(__name__)

ATTEMPT = re.compile(r"-a(\d+)")
"""Within the name of a checkpoint's directory, or of its draft: the attempt that wrote it."""


class Checkpoints:
    """Saves, prunes and restores the checkpoints under `root`, the run's own directory."""

    def __init__(
        self,
        root: Path,
        recorder: Recorder,
        *,
        run_id: str,
        attempt: int,
        config: RunConfig,
        origin: Origin | None = None,
    ) -> None:
        """`origin` is the checkpoint of another run that this one begins with."""
        self.root, self.recorder, self.run_id, self.attempt = root, recorder, run_id, attempt
        self.config, self.origin = config, origin
        self.saved_step = -1
        self.refused: set[str] = set()
        """Ids of checkpoints that turned out damaged: forgotten as soon as there is a new one."""

    def restore(self, policy: Policy, parts: Parts) -> int | None:
        """Put everything in the state of the newest checkpoint that is whole; its step, None without one.

        A damaged one is passed over with an event; a fork that has none of its own begins with its origin's.
        Raises BadCheckpoint when all are damaged.
        """
        with on_disk(self.root):
            return self._restore(policy, parts)

    def _restore(self, policy: Policy, parts: Parts) -> int | None:
        remove_drafts(self.root, self._is_ours)
        rows = self.recorder.read(lambda session: store.checkpoints_of(session, self.run_id))
        refused: list[dict[str, Any]] = []
        for row in rows:
            try:
                check_manifest(self.root / row.path, row.sha256)
                loaded = load_checkpoint(self.root / row.path, policy, parts)
            except BadCheckpoint as error:
                logger.warning("%s", error.detail)
                self.recorder.event("checkpoint", "error", f"refused: {error.detail}", step=row.step)
                self.refused.add(row.id)
                refused.append({"checkpoint": row.path, "reason": error.detail})
                continue
            self.saved_step = loaded.step
            # The attempt that saved it may have died before it tidied up, and nothing may be left to save.
            self._remove_strangers({row.path for row in rows})
            self._tell(f"continued from step {loaded.step}", loaded, row.path, refused)
            return loaded.step
        if self.origin is not None:
            return self._fork(self.origin, policy, parts, refused)
        if rows:
            raise BadCheckpoint(self.root, f"none of the run's {len(rows)} checkpoints is whole")
        return None

    def take_weights(self, policy: Policy) -> None:
        """Give the policy the weights of the origin, where the run has one, and nothing else of it."""
        if self.origin is not None:
            check_manifest(self.origin.directory, self.origin.sha256)
            verify_checkpoint(self.origin.directory)
            load_weights(self.origin.directory, policy)

    def _fork(self, origin: Origin, policy: Policy, parts: Parts, refused: list[dict[str, Any]]) -> int:
        check_manifest(origin.directory, origin.sha256)
        fit = fitting(parts, origin.config, self.config)
        loaded = load_checkpoint(origin.directory, policy, parts, fitting=fit)
        message = f"forked from step {loaded.step} of {origin.run_name}"
        if loaded.fresh:
            message += f"; {', '.join(loaded.fresh)} {'begins' if len(loaded.fresh) == 1 else 'begin'} anew"
        self._tell(message, loaded, origin.directory.name, refused, run=origin.run_id)
        return loaded.step

    def _tell(
        self, message: str, loaded: Loaded, name: str, refused: list[dict[str, Any]], **more: Any
    ) -> None:
        """The restored manifest, as an event: what goes on, what begins anew, what was refused."""
        now = versions()
        differing = {
            package: [loaded.versions.get(package, ""), found]
            for package, found in now.items()
            if loaded.versions.get(package) != found
        }
        restored = {
            "checkpoint": name,
            "step": loaded.step,
            "parts": ["policy", *loaded.restored],
            "fresh": loaded.fresh,
            "refused": refused,
            "versions": differing,
            **more,
        }
        self.recorder.event("checkpoint", "info", message, {"restored": restored}, step=loaded.step)

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

    def _prune(self) -> None:
        """Remove rows beyond the newest `keep` and the best one, then their directories."""
        kept: set[str] = set()

        def forget(session: Session) -> None:
            kept.update(
                store.forget_old_checkpoints(
                    session, self.run_id, keep=self.config.checkpointing.keep, damaged=self.refused
                )
            )

        self.recorder.commit(forget)
        self._remove_strangers(kept)

    def _remove_strangers(self, kept: Collection[str]) -> None:
        """Directories that belong to no row: of a forgotten checkpoint, or of a save that never ended."""
        for directory in self.root.iterdir():
            if directory.is_dir() and directory.name not in kept and self._is_ours(directory):
                remove_checkpoint(directory) if (directory / MANIFEST).is_file() else shutil.rmtree(directory)

    def _is_ours(self, path: Path) -> bool:
        """Whether this attempt or an earlier one wrote it: a later one, if we are fenced, writes here too."""
        found = ATTEMPT.search(path.name)
        return found is None or int(found[1]) <= self.attempt


def check_manifest(directory: Path, expected: str) -> None:
    """Raise BadCheckpoint unless the manifest is the one whose SHA-256 the row holds."""
    manifest = directory / MANIFEST
    if not manifest.is_file():
        raise BadCheckpoint(directory, f"{MANIFEST} is missing")
    if sha256(manifest.read_bytes()).hexdigest() != expected:
        raise BadCheckpoint(directory, f"{MANIFEST} is not the one that was written")


def _described(directory: Path, accuracy: float | None) -> dict[str, Any]:
    files = sorted(file.relative_to(directory).as_posix() for file in directory.rglob("*") if file.is_file())
    return {"files": files, "accuracy": accuracy}
