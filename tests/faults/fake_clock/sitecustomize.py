"""Work around libfaketime's rejection of the absolute `clock_nanosleep` that `time.sleep` uses."""

import threading
import time
from typing import SupportsIndex


def _sleep(seconds: SupportsIndex | float) -> None:
    threading.Event().wait(float(seconds))


time.sleep = _sleep
