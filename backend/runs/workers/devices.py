"""Detect the devices of this machine without importing torch."""

import csv
import importlib.util
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

from backend.base.settings import Settings

CPU = "cpu"
"""Device of a slot without a GPU."""

MAX_CPU_SLOTS = 4
"""Default maximum number of concurrent runs on a machine without GPUs.

Measured on 2 cores with the tiny policy: two concurrent runs with one thread each take 0.62 of the time that
they take one after the other with two threads.
"""

MAX_CPU_RANKS = 8
"""Maximum number of processes in which a run trains in one CPU slot."""

SLOT_BYTES = 1_500_000_000
"""Memory in bytes that a CPU slot may need: a trainer of the tiny policy and its spare use about 1.1 GB."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as reported by its driver."""

    uuid: str
    name: str


@dataclass(frozen=True, slots=True)
class Slot:
    """A slot in which one run can train."""

    number: int
    device: str
    """`cpu` or `cuda:0`, because a trainer sees only its own GPU."""
    device_name: str
    """Human-readable name of the device."""
    threads: int
    """Number of CPU threads of the trainer."""
    gpu: str = ""
    """UUID of the only GPU that the trainer can see; empty for a CPU slot."""


def find_slots(settings: Settings) -> list[Slot]:
    """Return one slot per GPU that torch can use, or else CPU slots, at most `WORKER_SLOTS`."""
    cpus = usable_cpus()
    gpus = find_gpus() if torch_build() not in ("", "cpu") else []
    if gpus:
        selected_gpus = gpus[: settings.worker_slots or len(gpus)]
        threads = max(1, cpus // len(selected_gpus))
        return [Slot(n, "cuda:0", gpu.name, threads, gpu.uuid) for n, gpu in enumerate(selected_gpus)]
    count = settings.worker_slots or default_cpu_slots(cpus, psutil.virtual_memory().total)
    return [Slot(n, CPU, cpu_name(), max(1, cpus // count)) for n in range(count)]


def default_cpu_slots(cpus: int, memory_bytes: int) -> int:
    """Return the number of concurrent runs on a machine without GPUs: one per CPU, if the memory suffices."""
    return max(1, min(cpus, memory_bytes // SLOT_BYTES, MAX_CPU_SLOTS))


def usable_cpus() -> int:
    """Return the number of CPUs that this process may use, limited by OMP_NUM_THREADS."""
    cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    omp_threads = os.environ.get("OMP_NUM_THREADS", "")
    return min(cpus, int(omp_threads)) if omp_threads.isdecimal() and int(omp_threads) else cpus


def cpu_name() -> str:
    """Return the model of the processor, such as "AMD EPYC 7B13", or "CPU" if it is unknown."""
    info = Path("/proc/cpuinfo")
    match = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.exists() else None
    return match[1] if match else "CPU"


def find_gpus() -> list[Gpu]:
    """Return the GPUs of this machine that CUDA_VISIBLE_DEVICES leaves visible."""
    try:
        listing = subprocess.run(
            ["nvidia-smi", "--query-gpu=uuid,name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    rows = csv.reader(listing.stdout.splitlines(), skipinitialspace=True)
    return visible_gpus(
        [Gpu(row[0], row[1]) for row in rows if len(row) >= 2], os.environ.get("CUDA_VISIBLE_DEVICES")
    )


def visible_gpus(gpus: list[Gpu], visible: str | None) -> list[Gpu]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES selects by indices or UUIDs, in its order."""
    if visible is None:
        return gpus
    selected_gpus = []
    for entry in visible.split(","):
        name = entry.strip()
        matches = [
            gpu for n, gpu in enumerate(gpus) if name == str(n) or (name and gpu.uuid.startswith(name))
        ]
        if not matches:  # CUDA itself ignores the first unknown entry and everything after it
            break
        selected_gpus.append(matches[0])
    return selected_gpus


def torch_build() -> str:
    """Return the target of the installed torch: "cpu", a CUDA version such as "13.0", or "" without torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return ""
    version = Path(spec.submodule_search_locations[0]) / "version.py"
    cuda_match = re.search(r"^cuda[^=\n]*=\s*'([^']+)'", version.read_text(), re.MULTILINE)
    return cuda_match[1] if cuda_match else "cpu"
