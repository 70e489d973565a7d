"""Save and restore the checkpoints of one run, which continues from the newest valid one.

The steps, the files and the row are written to disk in this order. After a power cut every row has its files,
and no checkpoint is ahead of the recorded steps. If the database has lost its newest transactions, it does
not know the newest checkpoints, and they are adopted.
"""

import logging
import re
import shutil
from collections.abc import Collection, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from backend.base.durable_files import sync
from backend.config.run import RunConfig
from backend.runs import checkpoints as store
from backend.storage.artifacts.names import checkpoint_age_key
from backend.storage.artifacts.store import ArtifactStore
from backend.storage.models import Checkpoint
from worker.checkpoints.disk import translate_disk_errors
from worker.checkpoints.files import (
    MANIFEST,
    BadCheckpoint,
    LoadedState,
    load_checkpoint,
    load_weights,
    package_versions,
    remove_checkpoint,
    remove_drafts,
    save_checkpoint,
    verify_checkpoint,
)
from worker.checkpoints.fork import ForkOrigin, fitting_parts
from worker.checkpoints.lineage import UnrecordedCheckpoint, make_lineage, unrecorded_checkpoints
from worker.checkpoints.uploads import Uploads
from worker.policy.model import Policy
from worker.recording.recorder import Recorder
from worker.state import Parts

logger = logging.getLogger(__name__)

Candidate = Checkpoint | UnrecordedCheckpoint

ATTEMPT_PATTERN = re.compile(r"-a(\d+)")
"""Pattern of the attempt number in the name of a checkpoint's directory or draft."""


MAX_FETCHED = 3
"""Maximum number of checkpoints without a row that are fetched to find one of this run."""


class RestoredCheckpoint(NamedTuple):
    """The checkpoint that an attempt began with."""

    directory: Path
    parts: list[str]
    """Names of the restored parts."""
    attempt: int | None = None
    """Attempt of this run that saved the checkpoint, or None if another run saved it."""


class Checkpoints:
    """Saves, prunes and restores the checkpoints in `root`, the directory of the run."""

    def __init__(
        self,
        root: Path,
        recorder: Recorder,
        *,
        run_id: str,
        attempt: int,
        config: RunConfig,
        origin: ForkOrigin | None = None,
        artifacts: ArtifactStore | None = None,
    ) -> None:
        """Open the store.

        `origin` is the checkpoint of another run from which this run starts. `artifacts` is the artifact
        store that gets a copy of every checkpoint.
        """
        self.root, self.recorder, self.run_id, self.attempt = root, recorder, run_id, attempt
        self.config, self.origin = config, origin
        self.uploads = Uploads(artifacts, run_id, recorder)
        self.saved_step = -1
        self.restored_checkpoint: RestoredCheckpoint | None = None
        """The checkpoint that was restored, if any."""
        self.damaged_names: set[str] = set()
        """Ids of damaged checkpoints, which are removed after the next save."""
        self.lineage = make_lineage(run_id, config, origin)
        self.unrecorded_checkpoints: dict[str, UnrecordedCheckpoint] = {}
        """Checkpoints of this run, by name, that the database did not know when this attempt began."""
        self.inherited_names: set[str] = set()
        """Names that existed when this attempt began, regardless of the attempt in the name."""

    def restore(self, policy: Policy, parts: Parts) -> int | None:
        """Restore the newest complete checkpoint and return its step, or None if there is none.

        A damaged checkpoint is skipped with an event. A checkpoint without a row is adopted; one after the
        last recorded step is adopted only if there is no other. A fork without a checkpoint starts from its
        origin's. A missing or damaged checkpoint is fetched from the artifact store. Raise ArtifactFault, or
        BadCheckpoint if all are damaged.
        """
        with translate_disk_errors(self.root):
            return self._restore(policy, parts)

    def _restore(self, policy: Policy, parts: Parts) -> int | None:
        remove_drafts(self.root, self._is_ours)
        rows = self.recorder.read(lambda session: store.load_checkpoints(session, self.run_id))
        recorded_step = self.recorder.read(lambda session: store.last_recorded_step(session, self.run_id))
        self._fetch_unrecorded(rows, recorded_step)
        self._look_for_unrecorded({row.path for row in rows})
        rejections: list[dict[str, Any]] = []
        for candidate in sort_by_preference([*rows, *self.unrecorded_checkpoints.values()], recorded_step):
            name = candidate.directory.name if isinstance(candidate, UnrecordedCheckpoint) else candidate.path
            try:
                loaded_state = self._load(candidate, self.root / name, policy, parts)
            except BadCheckpoint as error:
                self._refuse(candidate, name, error.detail)
                rejections.append({"checkpoint": name, "reason": error.detail})
                continue
            if isinstance(candidate, UnrecordedCheckpoint):
                self._adopt(candidate, recorded_step)
            self.saved_step = loaded_state.step
            self.restored_checkpoint = RestoredCheckpoint(
                self.root / name, loaded_state.restored_parts, candidate.attempt
            )
            # The attempt that saved it may have died before pruning, and this attempt may not save again.
            if self.uploads.are_wanted:
                self.recorder.commit(
                    lambda _: None
                )  # fetching took a while, so check that the run is still ours
            self._remove_unrecorded({name, *(row.path for row in rows)})
            self._report_restore(f"continued from step {loaded_state.step}", loaded_state, name, rejections)
            return loaded_state.step
        if self.origin is not None:
            return self._fork(self.origin, policy, parts, rejections)
        if rows and not self._never_copied(rows):
            raise BadCheckpoint(self.root, f"none of the run's {len(rows)} checkpoints is complete")
        return None

    def _never_copied(self, rows: Sequence[Checkpoint]) -> bool:
        """Return whether the machine was lost before any checkpoint was copied completely."""
        if not self.uploads.are_wanted or any((self.root / row.path).exists() for row in rows):
            return False
        if any(row.path in self.uploads.complete for row in rows):
            return False
        message = "begins anew: its checkpoints were on a machine that is gone, and none was copied yet"
        self.recorder.event("checkpoint", "warning", message)
        return True

    def _load(self, candidate: Candidate, directory: Path, policy: Policy, parts: Parts) -> LoadedState:
        """Restore everything, from a copy if a file is damaged. Raise BadCheckpoint."""
        is_fresh = self.uploads.fetch(directory)
        try:
            return load(candidate, directory, policy, parts)
        except BadCheckpoint as error:
            if is_fresh or directory.name not in self.uploads.complete or is_unchanged(candidate, directory):
                raise
            logger.warning("%s; fetching its copy", error.detail)
        self.uploads.fetch(directory, replace_existing=True)
        return load(candidate, directory, policy, parts)

    def _fetch_unrecorded(self, rows: Sequence[Checkpoint], recorded_step: int) -> None:
        """Fetch the checkpoint to adopt from an artifact store that is newer than this database.

        It is the newest checkpoint of the recorded steps, if it is newer than all rows. If there are no rows,
        it may also be the oldest one after the recorded steps.
        """
        newest = max((checkpoint_age_key(row.path) for row in rows), default=(-1, -1))
        unrecorded_names = sorted(
            (name for name in self.uploads.read_complete() if checkpoint_age_key(name) > newest),
            key=checkpoint_age_key,
        )
        within_recorded = [
            name for name in reversed(unrecorded_names) if checkpoint_age_key(name)[0] <= recorded_step
        ]
        beyond_recorded = (
            [] if rows else [name for name in unrecorded_names if checkpoint_age_key(name)[0] > recorded_step]
        )
        for name in [*within_recorded, *beyond_recorded][:MAX_FETCHED]:
            try:
                is_fresh = self.uploads.fetch(self.root / name)
            except BadCheckpoint as error:
                logger.warning("%s", error.detail)
                continue
            if any(
                checkpoint.directory.name == name
                for checkpoint in unrecorded_checkpoints(self.root, (), self.lineage)
            ):
                return
            if is_fresh:
                remove_checkpoint(self.root / name)

    def _refuse(self, candidate: Candidate, name: str, reason: str) -> None:
        logger.warning("%s", reason)
        self.recorder.event("checkpoint", "error", f"refused: {reason}", step=candidate.step)
        if isinstance(candidate, UnrecordedCheckpoint):
            del self.unrecorded_checkpoints[name]
        else:
            self.damaged_names.add(candidate.id)

    def _look_for_unrecorded(self, recorded_names: Collection[str]) -> None:
        """Find checkpoints of this run's lineage without a row.

        They may be of later attempts, whose transactions were lost.
        """
        checkpoints = unrecorded_checkpoints(self.root, recorded_names, self.lineage)
        if checkpoints:
            self.recorder.commit(lambda _: None)  # the run is ours, so no later attempt writes here
        self.unrecorded_checkpoints = {checkpoint.directory.name: checkpoint for checkpoint in checkpoints}
        self.inherited_names = {*recorded_names, *self.unrecorded_checkpoints}

    def _adopt(self, checkpoint: UnrecordedCheckpoint, recorded_step: int) -> None:
        """Add a row for a checkpoint that the database did not know."""
        row = self._row(
            checkpoint.directory,
            checkpoint.step,
            checkpoint.accuracy,
            min(checkpoint.attempt, self.attempt),
        )
        self.recorder.commit(lambda session: store.add_checkpoint(session, row))
        del self.unrecorded_checkpoints[checkpoint.directory.name]
        name = checkpoint.directory.name
        message = f"adopted checkpoint {name}: it is complete and belongs to this run, but had no row"
        if checkpoint.step > recorded_step:
            message += (
                f"; metrics and rollouts of the steps {recorded_step + 1} to {checkpoint.step} are lost"
            )
        logger.warning("%s", message)
        self.recorder.event(
            "checkpoint",
            "warning",
            message,
            {"adopted": checkpoint.directory.name},
            step=checkpoint.step,
        )

    def take_weights(self, policy: Policy) -> int:
        """Load only the weights of the run's origin into the policy, if it has one.

        Return the step of the weights, or 0 without an origin.
        """
        if self.origin is not None:
            self.uploads.fetch(self.origin.directory)
            check_manifest(self.origin.directory, self.origin.sha256)
            verify_checkpoint(self.origin.directory)
            load_weights(self.origin.directory, policy)
        return 0 if self.origin is None else self.origin.step

    def _fork(
        self, origin: ForkOrigin, policy: Policy, parts: Parts, rejections: list[dict[str, Any]]
    ) -> int:
        self.uploads.fetch(origin.directory)
        check_manifest(origin.directory, origin.sha256)
        fitting_names = fitting_parts(parts, origin.config, self.config)
        loaded_state = load_checkpoint(origin.directory, policy, parts, fitting_names=fitting_names)
        self.restored_checkpoint = RestoredCheckpoint(origin.directory, loaded_state.restored_parts)
        message = f"forked from step {loaded_state.step} of {origin.run_name}"
        if loaded_state.reset_parts:
            message += (
                f"; {', '.join(loaded_state.reset_parts)} "
                f"{'begins' if len(loaded_state.reset_parts) == 1 else 'begin'} anew"
            )
        self._report_restore(message, loaded_state, origin.directory.name, rejections, run=origin.run_id)
        return loaded_state.step

    def _report_restore(
        self,
        message: str,
        loaded_state: LoadedState,
        name: str,
        rejections: list[dict[str, Any]],
        **details: Any,
    ) -> None:
        """Record an event with the restored, reset and refused parts."""
        current_versions = package_versions()
        changed_versions = {
            package: [loaded_state.versions.get(package, ""), version]
            for package, version in current_versions.items()
            if loaded_state.versions.get(package) != version
        }
        restored = {
            "checkpoint": name,
            "step": loaded_state.step,
            "parts": ["policy", *loaded_state.restored_parts],
            "fresh": loaded_state.reset_parts,
            "refused": rejections,
            "versions": changed_versions,
            **details,
        }
        self.recorder.event("checkpoint", "info", message, {"restored": restored}, step=loaded_state.step)

    def save(self, policy: Policy, parts: Parts, *, step: int, accuracy: float | None) -> None:
        """Write a checkpoint of a step and remove checkpoints that are no longer kept.

        `accuracy` is the policy's held-out accuracy at this step, if it was measured.
        """
        if step == self.saved_step:
            return
        directory = self.root / f"s{step:06d}-a{self.attempt}"
        self.uploads.replace(directory.name)
        self.recorder.flush()  # otherwise a checkpoint could survive a power cut that its steps do not
        lineage_fields = self.lineage.document(attempt=self.attempt, accuracy=accuracy)
        save_checkpoint(directory, policy, parts, step=step, lineage_fields=lineage_fields)
        row = self._row(directory, step, accuracy, self.attempt)
        self.recorder.commit(lambda session: store.add_checkpoint(session, row))
        self.saved_step = step
        with translate_disk_errors(self.root):
            self.uploads.start(self._prune())

    def finish(self) -> None:
        """Wait until the artifact store has all kept checkpoints, then remove checkpoints that were kept
        for it.
        """
        if not self.uploads.are_wanted:
            return
        self.uploads.settle()
        with translate_disk_errors(self.root):
            if self.uploads.finish(self._prune()):
                self.uploads.finish(self._prune())

    def _row(self, directory: Path, step: int, accuracy: float | None, attempt: int) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "step": step,
            "attempt": attempt,
            "path": directory.name,
            "sha256": sha256((directory / MANIFEST).read_bytes()).hexdigest(),
            "bytes_total": sum(file.stat().st_size for file in directory.rglob("*") if file.is_file()),
            "manifest": _describe(directory, accuracy),
        }

    def _prune(self) -> list[Path]:
        """Remove rows by retention, then their directories, and return the other directories, newest first.

        The new checkpoint's row is committed. The newest copied checkpoint stays until the new one has a
        copy.
        """
        kept_names: set[str] = set()
        keep, spaced = self.config.checkpointing.keep, self.config.checkpointing.spaced
        spared_names = {
            "copied_paths": self.uploads.complete,
            "uploading_paths": self.uploads.uploading,
            "damaged_ids": self.damaged_names,
        }

        def forget(session: Session) -> None:
            kept_names.clear()
            kept_names.update(
                store.forget_old_checkpoints(session, self.run_id, keep=keep, spaced=spaced, **spared_names)
            )

        self.recorder.commit(forget)
        self._remove_unrecorded(kept_names)
        return [self.root / name for name in sorted(kept_names, key=checkpoint_age_key, reverse=True)]

    def _remove_unrecorded(self, kept_names: Collection[str]) -> None:
        """Remove directories without a row, left by removed checkpoints and unfinished saves."""
        directories = [
            directory
            for directory in self.root.iterdir()
            if directory.is_dir() and directory.suffix != ".fetch"  # another process may be fetching it
        ]
        removable_directories = [
            directory
            for directory in directories
            if directory.name not in kept_names and self._may_go(directory)
        ]
        for directory in removable_directories:
            remove_checkpoint(directory) if (directory / MANIFEST).is_file() else shutil.rmtree(directory)
        if removable_directories:
            sync(self.root)  # A power cut could restore them, and a run that has ended does not prune again.
        self.uploads.forget(kept_names, lambda name: self._may_go(self.root / name))

    def _may_go(self, directory: Path) -> bool:
        """Return whether a directory may be removed.

        It must be ours and, if it could be adopted, training must have reached its step again.
        """
        checkpoint = self.unrecorded_checkpoints.get(directory.name)
        return self._is_ours(directory) if checkpoint is None else checkpoint.step <= self.saved_step

    def _is_ours(self, path: Path) -> bool:
        """Return whether this attempt or an earlier one wrote a path.

        If this attempt is fenced, a later one writes to the directory too.
        """
        match = ATTEMPT_PATTERN.search(path.name)
        return path.name in self.inherited_names or match is None or int(match[1]) <= self.attempt


def sort_by_preference(candidates: Sequence[Candidate], recorded_step: int) -> list[Candidate]:
    """Sort the checkpoints: first the newest within the recorded steps, then the oldest after them."""
    newest_first = sorted(candidates, key=lambda candidate: (candidate.step, candidate.attempt), reverse=True)
    complete = [candidate for candidate in newest_first if candidate.step <= recorded_step]
    return complete + [candidate for candidate in reversed(newest_first) if candidate.step > recorded_step]


def load(candidate: Candidate, directory: Path, policy: Policy, parts: Parts) -> LoadedState:
    """Restore everything from a checkpoint. Raise BadCheckpoint."""
    if not isinstance(candidate, UnrecordedCheckpoint):
        check_manifest(directory, candidate.sha256)
    return load_checkpoint(directory, policy, parts)


def is_unchanged(candidate: Candidate, directory: Path) -> bool:
    """Return whether every file is unchanged since it was written."""
    try:
        if not isinstance(candidate, UnrecordedCheckpoint):
            check_manifest(directory, candidate.sha256)
        verify_checkpoint(directory)
    except BadCheckpoint:
        return False
    return True


def check_manifest(directory: Path, expected: str) -> None:
    """Raise BadCheckpoint unless the manifest has the SHA-256 of the row."""
    manifest = directory / MANIFEST
    if not manifest.is_file():
        raise BadCheckpoint(directory, f"{MANIFEST} is missing")
    if sha256(manifest.read_bytes()).hexdigest() != expected:
        raise BadCheckpoint(directory, f"{MANIFEST} is not the one that was written")


def _describe(directory: Path, accuracy: float | None) -> dict[str, Any]:
    files = sorted(file.relative_to(directory).as_posix() for file in directory.rglob("*") if file.is_file())
    return {"files": files, "accuracy": accuracy}
