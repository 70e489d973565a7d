"""Terminal output of the command line."""

import getpass
import os
import shlex
import sys
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TextIO

from backend.base.locations import CODE_ROOT, FILES_ROOT
from backend.base.settings import Settings


@dataclass(slots=True)
class Step:
    """A line of progress; `result` replaces the description of the activity."""

    result: str = "done"


@dataclass(frozen=True, slots=True)
class Terminal:
    """Prints progress as one line per step: rewritten on a terminal, two lines in a file."""

    out: TextIO = field(default_factory=lambda: sys.stdout)

    def say(self, text: str = "") -> None:
        """Print one line."""
        self._write(text + "\n")

    def _write(self, text: str) -> None:
        # The terminal may be disconnected; an orderly shutdown is more important than output.
        with suppress(OSError):
            self.out.write(text)
            self.out.flush()

    @contextmanager
    def step(self, name: str, activity: str) -> Iterator[Step]:
        """Show `activity` while the body runs, and then its result and duration."""
        started_at = time.monotonic()
        is_screen = self.out.isatty()
        self._write(f"  {name:<10} {activity} ..." + ("" if is_screen else "\n"))
        step = Step()
        try:
            yield step
        except BaseException:
            self._write("\n" if is_screen else "")
            raise
        seconds = time.monotonic() - started_at
        clear = "\r\x1b[K" if is_screen else ""
        self.say(f"{clear}  {name:<10} {step.result} ({seconds:.1f} s)")


def has_screen() -> bool:
    """Return whether the user could see a browser that is opened on this machine."""
    if os.environ.get("SSH_CONNECTION") or not sys.stdout.isatty():
        return False
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def tunnel_hint(settings: Settings) -> str:
    """Return a command with which another computer reaches this machine's loopback address; empty on a
    desktop.
    """
    if has_screen():
        return ""
    # SSH_CONNECTION: client address, client port, server address, server port
    connection = os.environ.get("SSH_CONNECTION", "").split()
    login = f"{getpass.getuser()}@{connection[2]}" if len(connection) == 4 else "you@this-machine"
    return f"ssh -N -L {settings.port}:127.0.0.1:{settings.port} {login}"


def link_command(settings: Settings) -> str:
    """Return the command that prints a login link of this installation, with its non-default settings."""
    values = {"PORT": settings.port, "STATE_DIR": settings.state_dir}
    default_fields = Settings.model_fields
    assignments = [
        f"{name}={shlex.quote(str(value))}"
        for name, value in values.items()
        if value != default_fields[name.lower()].default
    ]
    is_installed = FILES_ROOT != CODE_ROOT
    return " ".join([*assignments, "grpolab link"] if is_installed else ["make link", *assignments])


def show_link(terminal: Terminal, settings: Settings, link: str, *, opens_browser: bool = True) -> None:
    """Print the one-time link, and open it in a browser or print how to reach it."""
    terminal.say()
    terminal.say(f"  Open  {link}")
    terminal.say(f"        (works once, for ten minutes; `{link_command(settings)}` prints a new one)")
    if hint := tunnel_hint(settings):
        terminal.say("  On a remote machine? Run this on your own computer, then open the link there:")
        terminal.say(f"        {hint}")
    if opens_browser and has_screen():
        webbrowser.open(link)
