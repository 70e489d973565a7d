"""A file transport for Celery that is safe if processes read, write and die at the same time.

Kombu opens the file of a message before writing it, so a worker may read an incomplete message. It also
stores queue bindings in a file that stays empty if a process dies while creating it. In this transport,
messages appear complete, only one reader gets each message, and every process declares its own bindings.
"""

import json
import time
from pathlib import Path
from queue import Empty
from typing import Any
from uuid import uuid4

from kombu.transport import filesystem, virtual


class Channel(filesystem.Channel):
    """A channel that stores messages as files `<milliseconds>_<id>.<queue>.msg`, read oldest first."""

    supports_fanout = False
    get_table = virtual.Channel.get_table

    def _put(self, queue: str, payload: Any, **_options: Any) -> None:  # type: ignore[override]
        folder = Path(self.data_folder_out)
        name = f"{time.time_ns() // 1_000_000}_{uuid4()}"
        unfinished_file = folder / f"{name}.tmp"
        unfinished_file.write_text(json.dumps(payload), encoding="utf-8")
        unfinished_file.replace(folder / f"{name}.{queue}.msg")

    def _get(self, queue: str, timeout: float | None = None) -> Any:  # noqa: ARG002
        for file in sorted(Path(self.data_folder_in).glob(f"*.{queue}.msg")):
            try:
                payload = file.read_bytes()
                file.unlink()  # the process that removes the file owns the message
                return json.loads(payload)
            except (FileNotFoundError, ValueError):  # taken by another process, or torn by a power failure
                continue
        raise Empty


class Transport(filesystem.Transport):
    """The transport for `filesystem://` URLs."""

    Channel = Channel
