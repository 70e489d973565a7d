"""The model of a checkpoint as a tar file for `from_pretrained`, with its model card."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path

from backend.base.errors import Conflict
from backend.base.settings import Settings
from backend.exchange.archives.tar import Member, tar_stream
from backend.storage.artifacts.reading import open_artifact, read_manifest
from backend.storage.artifacts.store import MANIFEST
from backend.storage.models import Checkpoint

CARD = "README.md"


def model_files(settings: Settings, checkpoint: Checkpoint) -> dict[str, int]:
    """Return the names and sizes of the model's files, without the state of the trainer.

    Raise Conflict if the checkpoint is damaged or missing, and ArtifactFault.
    """
    try:
        files = json.loads(read_manifest(settings, checkpoint))["files"]
    except ValueError:
        raise Conflict(f"checkpoint {checkpoint.path} is damaged: its {MANIFEST} has changed") from None
    except OSError:
        raise Conflict(f"checkpoint {checkpoint.path} is not on this machine") from None
    names = sorted(name for name in files if "/" not in name and name != CARD)
    return {name: files[name]["bytes"] for name in names}


def model_stream(settings: Settings, checkpoint: Checkpoint, card: str) -> Iterator[bytes]:
    """Return the tar file, whose files are all open when this returns; raise Conflict and ArtifactFault."""
    content = card.encode()
    with ExitStack() as open_files:
        members = [Member(CARD, BytesIO(content), len(content))]
        for name, size in model_files(settings, checkpoint).items():
            try:
                path = _directory(settings, checkpoint) / name
                file = open_files.enter_context(open_artifact(settings, path))
            except OSError:
                raise Conflict(f"checkpoint {checkpoint.path} is incomplete: {name} is missing") from None
            members.append(Member(name, file, size))
        open_files.pop_all()  # the stream closes the files
        return tar_stream(members)


def _directory(settings: Settings, checkpoint: Checkpoint) -> Path:
    return settings.artifact_dir(checkpoint.run_id) / checkpoint.path
