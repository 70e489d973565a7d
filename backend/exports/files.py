"""A checkpoint's model as one tar file: what `from_pretrained` opens, with its model card."""

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path

from backend.archives.tar import Member, tar_stream
from backend.db.models import Checkpoint
from backend.errors import Conflict

MANIFEST = "manifest.json"
CARD = "README.md"


def model_files(directory: Path, checkpoint: Checkpoint) -> list[str]:
    """Names of the files that are the model; the trainer's state is no part of it. Raises Conflict."""
    try:
        content = (directory / MANIFEST).read_bytes()
        if hashlib.sha256(content).hexdigest() != checkpoint.sha256:
            raise Conflict(f"checkpoint {checkpoint.path} is damaged: its {MANIFEST} has changed")
        names = json.loads(content)["files"]
    except OSError:
        raise Conflict(f"checkpoint {checkpoint.path} is not on this machine") from None
    return sorted(name for name in names if "/" not in name and name != CARD)


def model_stream(directory: Path, checkpoint: Checkpoint, card: str) -> Iterator[bytes]:
    """The tar file; all its files are open when this returns. Raises Conflict."""
    content = card.encode()
    with ExitStack() as opened:
        members = [Member(CARD, BytesIO(content), len(content))]
        for name in model_files(directory, checkpoint):
            try:
                file = opened.enter_context((directory / name).open("rb"))
            except OSError:
                raise Conflict(f"checkpoint {checkpoint.path} is incomplete: {name} is missing") from None
            members.append(Member(name, file, os.fstat(file.fileno()).st_size))  # its name may be gone
        opened.pop_all()  # the stream closes them
        return tar_stream(members)
