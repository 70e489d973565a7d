"""Examine Python, memory, GPUs and the build of torch."""

import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil

from backend.base.sandbox.layers import layers, missing_layers, program_refusal
from backend.base.settings import Settings
from backend.base.text import size_text
from backend.runs.workers.devices import SLOT_BYTES, find_gpus, find_slots, torch_build
from backend.service.doctor.finding import Finding, bad, ok, warn

MIN_PYTHON_VERSION = (3, 11)

MIN_DRIVER_BY_CUDA = {13: 580, 12: 525, 11: 450}
"""First version of NVIDIA's Linux driver that supports each major version of CUDA."""

CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")


def examine_machine(settings: Settings) -> Iterator[Finding]:
    """Yield a finding for each topic of this module."""
    yield python(sys.version_info[:3])
    yield memory(settings, memory_bytes())
    yield torch()
    slots = find_slots(settings)
    threads = (f"{slot.threads} thread{'s' if slot.threads != 1 else ''}" for slot in slots)
    descriptions = (
        f"{slot.device_name}, {threads_of_slot}" for slot, threads_of_slot in zip(slots, threads, strict=True)
    )
    yield ok("devices", "; ".join(descriptions))
    yield sandbox(settings)


def python(version: tuple[int, ...]) -> Finding:
    """Check the version of Python."""
    description = f"{'.'.join(map(str, version))} ({sys.executable})"
    if version < MIN_PYTHON_VERSION:
        return bad("python", f"{description} is too old: install Python 3.11 or newer and `make clean up`")
    return ok("python", description)


def memory_bytes() -> int:
    """Return the memory that this process may use in bytes: the machine's, or the limit of a container."""
    total: int = psutil.virtual_memory().total
    limit = CGROUP_LIMIT.read_text().strip() if CGROUP_LIMIT.exists() else ""
    return min(total, int(limit)) if limit.isdecimal() else total


def memory(settings: Settings, total: int) -> Finding:
    """Check the memory; a trainer of the tiny policy and its spare need SLOT_BYTES."""
    slots, size = len(find_slots(settings)), size_text(total)
    if total < SLOT_BYTES:
        return bad("memory", f"{size}: one run needs {size_text(SLOT_BYTES)}; use a machine with more")
    if total < SLOT_BYTES * slots:
        max_slots = total // SLOT_BYTES
        return warn("memory", f"{size} for {slots} runs at a time: set WORKER_SLOTS={max_slots}")
    return ok("memory", size)


def torch() -> Finding:
    """Check whether the build of torch fits the GPUs and the driver."""
    build, gpus = torch_build(), find_gpus()
    if not build:
        return bad("torch", "not installed: workers here cannot train (pip install -r requirements.lock)")
    names = ", ".join(gpu.name for gpu in gpus)
    if gpus and build == "cpu":
        return bad(
            "torch",
            f"this machine has a GPU ({names}), but the CPU build of torch is installed: "
            "see README, 'Two commands'",
        )
    if gpus and (driver := driver_version()):
        min_driver = MIN_DRIVER_BY_CUDA.get(int(build.split(".")[0]), 0)
        if driver < min_driver:
            return bad(
                "torch",
                f"the NVIDIA driver {driver} is too old for torch's CUDA {build}: "
                f"install {min_driver} or newer",
            )
    if build != "cpu" and not gpus:
        return warn("torch", f"built for CUDA {build}, but nvidia-smi shows no GPU: runs train on the CPU")
    return ok("torch", f"built for {'the CPU' if build == 'cpu' else f'CUDA {build}'}")


def sandbox(settings: Settings) -> Finding:
    """Check the sandbox layers around the processes that read the output of models."""
    absent_layers = missing_layers()
    if not absent_layers:
        return ok("sandbox", f"all layers: {', '.join(layer.name for layer in layers())}")
    text = "; ".join(
        f"no {layer.name}, which keeps out {layer.keeps_out}: {layer.missing}" for layer in absent_layers
    )
    if refusal_reason := program_refusal(settings):
        text += f"; the reward code, plugins and the tool python are refused: {refusal_reason}"
    return (bad if settings.sandbox == "required" else warn)("sandbox", text)


def driver_version() -> int:
    """Return the major version of NVIDIA's driver; 0 if it is unknown."""
    argv = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        output = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return 0
    major = output.strip().partition(".")[0]
    return int(major) if platform.system() == "Linux" and major.isdecimal() else 0
