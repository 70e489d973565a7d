"""Processes whose clock is wrong or set while they run, by libfaketime (Debian's package `faketime`).

Only the time of day is faked. Clocks that measure durations continue, as when a machine's clock is set."""

from pathlib import Path

from tests.servers import Missing

LIBRARY_PATTERNS = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib*/faketime/libfaketimeMT.so.1")
SHIM_DIRECTORY = Path(__file__).parent / "fake_clock"
ROOT = Path(__file__).parent.parent.parent


def find_faketime() -> str:
    """Return the library to preload in a process."""
    for pattern in LIBRARY_PATTERNS:
        for library in sorted(Path("/").glob(pattern[1:])):
            return str(library)
    raise Missing("libfaketime (apt-get install faketime)")


class Clock:
    """A clock that is shown to all processes started with its environment."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "clock"
        self._library = find_faketime()
        self.set(0)

    def set(self, seconds: int) -> None:
        """Set the clock ahead by this many seconds, or behind if negative."""
        draft = self._file.with_suffix(".draft")
        draft.write_text(f"{seconds:+d}\n")
        draft.replace(self._file)

    @property
    def environment(self) -> dict[str, str]:
        """Environment of a process that uses this clock."""
        return {
            "LD_PRELOAD": self._library,
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "NO_FAKE_STAT": "1",
            "PYTHONPATH": f"{SHIM_DIRECTORY}:{ROOT}",
        }
