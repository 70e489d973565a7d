"""Limit the size of the files under `state/logs` to which the launcher's programs write."""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

MAX_LOG_BYTES = 10_000_000
"""Maximum size of a log in bytes; a larger one is moved to `NAME.old.log`, replacing the previous one."""


def limit_size(log: Path) -> None:
    """Move the contents of a log that is too large; it is copied and truncated, because its program has it
    open.
    """
    if not log.exists() or log.stat().st_size <= MAX_LOG_BYTES:
        return
    # Lines written between the two calls are lost; the program appends, so it continues at the start.
    with suppress(OSError):  # a full disk, for which truncating is the remedy
        shutil.copyfile(log, log.with_suffix(".old.log"))
    os.truncate(log, 0)


def last_words(log: Path) -> str:
    """Return the last line of a log, or its message if it is JSON."""
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    last_line = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
    try:
        return str(json.loads(last_line)["message"])
    except (ValueError, TypeError, KeyError):
        return last_line
