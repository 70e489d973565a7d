"""Read the files of checkpoints from this machine, or else from the artifact store."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import IO

from backend.base.settings import Settings
from backend.storage.artifacts.responses import BLOCK_BYTES
from backend.storage.artifacts.store import MANIFEST, MAX_MANIFEST_BYTES, artifact_store
from backend.storage.models import Checkpoint


def open_artifact(settings: Settings, path: Path) -> IO[bytes]:
    """Open a file of a checkpoint on this machine, or else in the store.

    Raises FileNotFoundError if neither has it, another OSError if the disk fails, and ArtifactFault if the
    store fails.
    """
    try:
        return path.open("rb")
    except FileNotFoundError:
        if (store := artifact_store(settings)) is None:
            raise
    return store.open(path)


def read_manifest(settings: Settings, checkpoint: Checkpoint) -> bytes:
    """Read the unparsed manifest of a checkpoint from this machine, or else from the store.

    Raises OSError if it is missing, ValueError if its SHA-256 is not the recorded one, and ArtifactFault if
    the store fails.
    """
    directory = settings.artifact_dir(checkpoint.run_id) / checkpoint.path
    try:
        with (directory / MANIFEST).open("rb") as file:
            content = file.read(MAX_MANIFEST_BYTES + 1)
    except FileNotFoundError:
        if (store := artifact_store(settings)) is None:
            raise
        content = store.manifest(directory)
    if sha256(content).hexdigest() != checkpoint.sha256:
        raise ValueError(f"{MANIFEST} of {checkpoint.path} has changed")
    return content


def read_blocks(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the content of an open file in blocks, then close it."""
    with file:
        while block := file.read(BLOCK_BYTES):
            yield block
