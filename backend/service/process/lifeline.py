"""Ties a child to its launcher: the child's standard input is a pipe, and its end means "stop".

It holds even when the launcher is killed with -9, and on every system.
"""

import ctypes
import os
import signal
import sys
import threading

VARIABLE = "GRPOLAB_LIFELINE"
"""Set for a child whose standard input is its launcher's lifeline."""

PR_SET_PDEATHSIG = 1


def follow_launcher() -> None:
    """Ask this process to stop, as SIGTERM does, once its launcher is gone."""
    if os.environ.pop(VARIABLE, ""):
        threading.Thread(target=_wait_for_end, name="lifeline", daemon=True).start()


def _wait_for_end() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def die_with_parent() -> None:
    """Called in a child just before exec: let the kernel end it with its parent (Linux; for foreign
    programs).
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
