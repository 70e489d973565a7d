"""Celery's queue of files, safe against processes that read, write and die at the same time.

Kombu opens a message's file before it writes it, so that a worker may read half of one, and it keeps the
bindings of queues in a file that is left empty by whoever dies while making it. Here a message appears
whole, one reader gets it, and each process keeps the bindings that it declares for itself.
"""

import json
import time
from pathlib import Path
from queue import Empty
from typing import Any
from uuid import uuid4

from kombu.transport import filesystem, virtual


class Channel(filesystem.Channel):
    """Messages are files `<milliseconds>_<id>.<queue>.msg`, oldest first."""

    supports_fanout = False
    get_table = virtual.Channel.get_table

    def _put(self, queue: str, payload: Any, **_options: Any) -> None:  # type: ignore[override]
        folder = Path(self.data_folder_out)
        name = f"{time.time_ns() // 1_000_000}_{uuid4()}"
        unfinished = folder / f"{name}.tmp"
        unfinished.write_text(json.dumps(payload), encoding="utf-8")
        unfinished.replace(folder / f"{name}.{queue}.msg")

    def _get(self, queue: str, timeout: float | None = None) -> Any:  # noqa: ARG002
        for file in sorted(Path(self.data_folder_in).glob(f"*.{queue}.msg")):
            try:
                payload = file.read_bytes()
                file.unlink()  # whoever removes it has it
                return json.loads(payload)
            except (FileNotFoundError, ValueError):  # somebody else's, or torn when the machine lost power
                continue
        raise Empty


class Transport(filesystem.Transport):
    """The transport of `filesystem://`."""

    Channel = Channel
