"""Copies of checkpoints in the artifact store: which there are, and making those that are missing."""

from collections.abc import Iterable, Iterator

from backend.artifacts.store import MANIFEST, artifact_store
from backend.errors import Conflict
from backend.settings import Settings


class Copies:
    """The complete checkpoints in the artifact store; a run is looked at again for one that is not known."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._known: set[tuple[str, str]] = set()

    def has(self, run_id: str, name: str) -> bool:
        """Whether the store has this checkpoint of a run. Raises ArtifactFault."""
        store = artifact_store(self._settings)
        if store is not None and (run_id, name) not in self._known:
            listing = store.listing(run_id)
            self._known.update((run_id, each) for each, is_complete in listing.items() if is_complete)
        return (run_id, name) in self._known


def copy_missing(settings: Settings, checkpoints: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Upload those of the checkpoints (run id, name) that lie here and that the store lacks; a line for each.

    Raises Conflict without ARTIFACTS_URL, and ArtifactFault.
    """
    store, copies = artifact_store(settings), Copies(settings)
    if store is None:
        raise Conflict("ARTIFACTS_URL is empty: set it to the address that checkpoints are copied to")
    for run_id, name in checkpoints:
        directory = settings.artifacts_of(run_id) / name
        if copies.has(run_id, name):
            continue
        if (directory / MANIFEST).is_file():
            store.upload(directory)
            yield f"copied {run_id}/{name}"
        else:
            yield f"{run_id}/{name} is neither here nor there"
