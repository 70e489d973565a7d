"""Find the copies of checkpoints in the artifact store, and upload missing ones."""

from collections.abc import Iterable, Iterator
from hashlib import sha256

from backend.base.errors import Conflict
from backend.base.settings import Settings
from backend.storage.artifacts.store import MANIFEST, ArtifactFault, ArtifactStore, BadCopy, artifact_store
from backend.storage.models import Checkpoint


class Copies:
    """The complete checkpoints in the artifact store, cached from the first lookup of each run."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: dict[str, dict[str, bool]] = {}

    def has(self, run_id: str, name: str) -> bool:
        """Return whether the store has this checkpoint of a run. Raises ArtifactFault if the store fails."""
        if (store := artifact_store(self._settings)) is None:
            return False
        if run_id not in self._known:
            self._known[run_id] = store.list_copies(run_id)
        return self._known[run_id].get(name, False)


def copy_missing(settings: Settings, checkpoints: Iterable[Checkpoint]) -> Iterator[tuple[str, bool]]:
    """Upload the checkpoints that exist on this machine but not in the store.

    Yields a message for each checkpoint that the store lacked, and whether the store has it now. Raises
    Conflict if ARTIFACTS_URL is not set.
    """
    if (store := artifact_store(settings)) is None:
        raise Conflict("ARTIFACTS_URL is empty: set it to the address that checkpoints are copied to")
    for checkpoint in checkpoints:
        name, directory = (
            f"{checkpoint.run_id}/{checkpoint.path}",
            settings.artifact_dir(checkpoint.run_id) / checkpoint.path,
        )
        try:
            if _is_copied(store, checkpoint, settings):
                continue
            if (directory / MANIFEST).is_file():
                store.upload(directory)
                yield f"copied {name}", True
            else:
                yield f"{name} is missing on this machine and in the store", False
        except ArtifactFault as error:
            yield f"{name} was not copied: {error.detail}", False


def _is_copied(store: ArtifactStore, row: Checkpoint, settings: Settings) -> bool:
    """Return whether the store has exactly this checkpoint, and not a different one with the same name."""
    try:
        content = store.manifest(settings.artifact_dir(row.run_id) / row.path)
    except (FileNotFoundError, BadCopy):
        return False
    return sha256(content).hexdigest() == row.sha256
