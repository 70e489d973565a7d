"""Detection of out-of-memory errors, and the memory that was in use."""

import resource
from pathlib import Path

import psutil

from backend.db.text import size_text

SAYINGS = (
    "out of memory",  # CUDA, and what is built on it
    "can't allocate memory",  # torch's allocator for the CPU
    "Cannot allocate memory",  # ENOMEM
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def is_memory_error(error: BaseException) -> bool:
    """Libraries say so by class or only in words."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError | OSError) and any(saying in str(error) for saying in SAYINGS)


def memory_text() -> str:
    """The most memory that this process has taken, and the machine's memory, in words."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return used_text(peak)


def used_text(count: float) -> str:
    """The share of the machine's memory that a process took, in words."""
    return f"the trainer took {size_text(count)} of the machine's {size_text(psutil.virtual_memory().total)}"


def oom_kills() -> int:
    """The number of processes that this machine's kernel has killed for lack of memory."""
    try:
        words = Path("/proc/vmstat").read_text().split()
    except OSError:
        return 0
    return int(words[words.index("oom_kill") + 1]) if "oom_kill" in words else 0
