"""Clean, buffer and limit the output of a trainer before it is stored in SQL."""

import logging
import re
import threading
from collections import deque
from collections.abc import Callable

from backend.base.redaction import redact
from backend.base.text import escape_character

logger = logging.getLogger(__name__)

MAX_STORED_CHARACTERS = 2_000_000
"""Maximum length of the stored output of one attempt, in characters."""

FLUSH_SECONDS = 1.0
"""Seconds between two writes of buffered output."""

FLUSH_CHARACTERS = 32_000

LIMIT_NOTE = f"[output beyond {MAX_STORED_CHARACTERS:,} characters is not kept]\n"

LAST_LINES, LAST_CHARACTERS = 40, 8_000
"""Maximum number of lines and characters of the rank output that a node reports to the leader on failure."""

ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.")
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters, which are shown as escape sequences."""


def clean_line(line: str) -> str:
    """Return a line without colours and secrets, with escaped controls, or the last state of a progress
    bar.
    """
    last = ESCAPES.sub("", line.rstrip("\r")).rpartition("\r")[2]
    return redact(CONTROLS.sub(escape_character, last))


class LogCollector:
    """Collects lines and passes chunks to `write(number, text)`, in the calling thread."""

    def __init__(self, write: Callable[[int, str], None], *, limit: int = MAX_STORED_CHARACTERS) -> None:
        self._write = write
        self._lines: list[str] = []
        self._size = 0
        self._remaining_characters = limit
        self._number = 0
        self._chunk_lines = 0
        """Number of lines in the chunk that is being written."""
        self._lock = threading.Lock()
        self._write_lock = threading.Lock()

    def add(self, line: str) -> None:
        """Record one line of output."""
        if self._remaining_characters < 0:
            return
        text = clean_line(line) + "\n"
        with self._lock:
            if len(text) > self._remaining_characters:
                text, self._remaining_characters = LIMIT_NOTE, 0
            self._remaining_characters -= len(text)
            self._lines.append(text)
            self._size += len(text)

    @property
    def is_full(self) -> bool:
        """True if enough output is buffered to be written immediately."""
        return self._size >= FLUSH_CHARACTERS

    def flush(self) -> None:
        """Write the buffered output, and keep it if that fails.

        The same chunk is retried under its number, because it may have been stored although the answer was
        lost. New output is kept for the next call.
        """
        with self._write_lock:
            for _ in range(2 if self._chunk_lines else 1):
                with self._lock:
                    self._chunk_lines = self._chunk_lines or len(self._lines)
                    text = "".join(self._lines[: self._chunk_lines])
                if not text:
                    return
                self._write(self._number, text)
                with self._lock:
                    self._number += 1
                    del self._lines[: self._chunk_lines]
                    self._size -= len(text)
                    self._chunk_lines = 0


class LastLines:
    """Writes the output of a trainer to the worker's log and keeps its last lines."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LAST_LINES)

    def add(self, line: str) -> None:
        """Record one line of output."""
        text = clean_line(line)
        logger.info("%s", text)
        self._lines.append(text)

    @property
    def text(self) -> str:
        """The last lines. The start of a long first line may be missing."""
        return "\n".join(self._lines)[-LAST_CHARACTERS:]
