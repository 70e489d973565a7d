"""Tie a child process to its launcher: the child stops when the pipe on its standard input is closed.

This works on every system, even if the launcher is killed with SIGKILL.
"""

import ctypes
import os
import signal
import sys
import threading

LIFELINE_VARIABLE = "GRPOLAB_LIFELINE"
"""Environment variable that is set for a child whose standard input is its launcher's lifeline."""

PR_SET_PDEATHSIG = 1


def follow_launcher() -> None:
    """Stop this process, as SIGTERM does, when its launcher has ended."""
    if os.environ.pop(LIFELINE_VARIABLE, ""):
        threading.Thread(target=_wait_for_end, name="lifeline", daemon=True).start()


def _wait_for_end() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def die_with_parent() -> None:
    """Make the kernel stop this child with its parent; must be called just before exec (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
