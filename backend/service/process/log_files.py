"""The files under `state/logs` that the launcher's programs write to."""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path

LIMIT_BYTES = 10_000_000
"""A longer log is set aside as `NAME.old.log`; the one that was set aside before is gone."""


def limit_size(log: Path) -> None:
    """Set a log aside that has grown too long: copied and emptied, because its program holds it open."""
    if not log.exists() or log.stat().st_size <= LIMIT_BYTES:
        return
    # What is written between the two calls is lost; a program appends, so it continues at the beginning.
    with suppress(OSError):  # a full disk: emptying it is what helps
        shutil.copyfile(log, log.with_suffix(".old.log"))
    os.truncate(log, 0)


def last_words(log: Path) -> str:
    """Return the last line of a log, of a JSON line its message."""
    lines = log.read_text(errors="replace").split("\n") if log.exists() else []
    last = next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
    try:
        return str(json.loads(last)["message"])
    except (ValueError, TypeError, KeyError):
        return last
