"""Detect out-of-memory errors and describe the memory that was in use."""

import resource
import sys
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from backend.base.text import size_text

MEMORY_MESSAGES = (
    "out of memory",  # CUDA, and libraries built on it
    "can't allocate memory",  # torch's allocator for the CPU
    "Cannot allocate memory",  # ENOMEM
    "CUBLAS_STATUS_ALLOC_FAILED",
)


def is_memory_error(error: BaseException) -> bool:
    """Return whether an error means that memory ran out. Libraries signal it by its class or only in its
    message.
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError | OSError) and any(
        saying in str(error) for saying in MEMORY_MESSAGES
    )


def memory_text(error: BaseException) -> str:
    """Return a sentence about the memory of the GPU or machine that this process used when it ran out."""
    if is_gpu_error(error) and (gpu := _gpu_memory()):
        return gpu_text(gpu)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return used_text(peak)


def is_gpu_error(error: BaseException) -> bool:
    """Return whether a GPU's memory ran out, for which torch has a separate error class."""
    is_named = any(name in str(error) for name in ("CUDA", "CUBLAS"))
    return type(error).__name__ == "OutOfMemoryError" or is_named


class GpuMemory(NamedTuple):
    """The memory of a GPU at one moment, in bytes."""

    reserved_bytes: int
    """Number of bytes that this process holds for its tensors."""
    free_bytes: int
    total_bytes: int


def _gpu_memory() -> GpuMemory | None:
    """Return the memory of the GPU in use, or None if there is none. Torch is used only if it is imported."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    try:
        free_bytes, total_bytes = torch.cuda.mem_get_info()
        return GpuMemory(torch.cuda.memory_reserved(), free_bytes, total_bytes)
    except RuntimeError:  # A GPU that has failed does not answer.
        return None


def gpu_text(memory: GpuMemory) -> str:
    """Return a sentence about the processes that hold a GPU's memory."""
    held_elsewhere = max(0, memory.total_bytes - memory.free_bytes - memory.reserved_bytes)
    return (
        f"the trainer held {size_text(memory.reserved_bytes)} of the GPU's "
        f"{size_text(memory.total_bytes)}, other processes and CUDA itself {size_text(held_elsewhere)}; "
        f"{size_text(memory.free_bytes)} were free"
    )


def used_text(count: float) -> str:
    """Return a sentence about the share of the machine's memory that a process used."""
    return f"the trainer took {size_text(count)} of the machine's {size_text(psutil.virtual_memory().total)}"


def oom_kills() -> int:
    """Return the number of processes that this machine's kernel has killed for lack of memory."""
    try:
        counters = Path("/proc/vmstat").read_text().split()
    except OSError:
        return 0
    return int(counters[counters.index("oom_kill") + 1]) if "oom_kill" in counters else 0
