"""Adapts processes to libfaketime, which refuses the absolute `clock_nanosleep` of Python's `time.sleep`."""

import threading
import time
from typing import SupportsIndex


def _sleep(seconds: SupportsIndex | float) -> None:
    threading.Event().wait(float(seconds))


time.sleep = _sleep
