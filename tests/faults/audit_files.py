"""Check the files behind the rows: complete checkpoints, and no file without an owner."""

import json
from collections.abc import Collection, Iterator
from hashlib import file_digest, sha256
from pathlib import Path
from typing import Any

from backend.storage.models import Checkpoint, Run

MANIFEST_NAME = "manifest.json"


def checkpoint_files(
    run: Run, checkpoints: Collection[Checkpoint], state_dir: Path, damaged: Collection[str] = ()
) -> Iterator[str]:
    """Check invariant I3. A running run adds and removes checkpoints, so only a run at rest is checked."""
    if run.status == "running":
        return
    for row in checkpoints:
        if f"{run.id}/{row.path}" not in damaged:
            reason = _fault(state_dir / "runs" / run.id / row.path, row.sha256)
            if reason:
                yield f"I3: checkpoint {row.path} of run {run.id}: {reason}"


def _fault(directory: Path, digest: str) -> str:
    """Return what is wrong with a checkpoint, or an empty text if it matches its row."""
    manifest = directory / MANIFEST_NAME
    if not manifest.is_file():
        return f"{MANIFEST_NAME} is missing"
    content = manifest.read_bytes()
    if sha256(content).hexdigest() != digest:
        return f"{MANIFEST_NAME} is not the one in its row"
    for name, entry in json.loads(content)["files"].items():
        if not (directory / name).is_file():
            return f"{name} is missing"
        if _digests_by_path(directory / name) != entry:
            return f"{name} is not the one in the manifest"
    return ""


def _digests_by_path(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": file_digest(file, "sha256").hexdigest()}


def ownerless_files(
    runs: Collection[Run], checkpoints: Collection[Checkpoint], state_dir: Path
) -> Iterator[str]:
    """Check invariant I5 for files. A finished run has no leftovers, since each attempt cleans up."""
    directories = {path.name: path for path in (state_dir / "runs").glob("*")}
    for name in sorted(directories.keys() - {run.id for run in runs}):
        yield f"I5: {directories[name]} belongs to no run"
    for run in runs:
        if run.status == "finished" and run.id in directories:
            rows = {row.path for row in checkpoints if row.run_id == run.id}
            for path in sorted(directories[run.id].iterdir()):
                if path.name not in rows:
                    yield f"I5: {path} belongs to no checkpoint"
