"""Use standard input as the lifeline of a process, and format the reason of a failure."""

import json
import os
from typing import NoReturn

from backend.base.redaction import redact
from worker.out_of_memory import is_memory_error, memory_text
from worker.outcome import EXIT_ORPHANED, REASON_CHARACTERS


def await_line() -> bytes:
    """Return the first line of standard input, or exit the process if the input ends.

    It reads the descriptor directly, because the buffer of sys.stdin would hide the end of input from
    os.read.
    """
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            os._exit(EXIT_ORPHANED)
        line += byte
    return line


def exit_at_end() -> NoReturn:
    """Exit as soon as standard input ends."""
    while os.read(0, 4096):
        pass
    os._exit(EXIT_ORPHANED)


def failure_report(error: BaseException) -> dict[str, str]:
    """Return the reason to store, as one line, and its kind: "memory" or "exception"."""
    text = str(error).strip().splitlines()
    name = type(error).__name__
    is_memory = is_memory_error(error)
    reason = redact(f"{name}: {text[0]}" if text else name)
    if is_memory:
        reason = f"out of memory ({memory_text(error)}): {reason}"
    return {"reason": reason[:REASON_CHARACTERS], "kind": "memory" if is_memory else "exception"}


def failure_text(error: BaseException) -> str:
    """Return the line with which a process reports its failure."""
    return json.dumps({"failed": failure_report(error)})
