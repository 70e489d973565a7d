"""The load of a machine and of one of its GPUs, from psutil and NVML."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil
import pynvml

Readings = dict[str, float]

INTERVAL_SECONDS = 1.0
"""Seconds between two readings of a GPU, because its utilisation covers only a short moment."""


class MachineLoad:
    """The load of this machine since the last reading: processor, memory, disk, network and one GPU.

        cpu_frac                busy share of all processors
        memory_bytes            memory in use, of memory_total_bytes
        disk_free_bytes         free space on the file system of `path`
        disk_read_rate          bytes per second, of all disks; disk_write_rate
        network_receive_rate    bytes per second, without the loopback; network_send_rate
        gpu_*                   see `GpuLoad`; left out without a GPU

    Values that the system does not report are left out.
    """

    def __init__(self, path: Path, gpu: str = "") -> None:
        self._path = path
        self._gpu = GpuLoad(gpu) if gpu else None
        psutil.cpu_percent()  # starts the first interval
        self._since, self._counted = time.monotonic(), _count_transferred()

    def read(self) -> Readings:
        """Return the means since the last call and the current usage; must always be called by the same
        thread.
        """
        memory = psutil.virtual_memory()
        readings: Readings = {
            "cpu_frac": psutil.cpu_percent() / 100,
            "memory_bytes": memory.total - memory.available,
            "memory_total_bytes": memory.total,
        }
        with suppress(OSError):
            readings["disk_free_bytes"] = psutil.disk_usage(str(self._path)).free
        now, transferred_bytes = time.monotonic(), _count_transferred()
        seconds = max(now - self._since, 1e-3)
        for name in transferred_bytes.keys() & self._counted.keys():
            readings[name] = max(0.0, transferred_bytes[name] - self._counted[name]) / seconds
        self._since, self._counted = now, transferred_bytes
        return readings | (self._gpu.read() if self._gpu else {})

    def close(self) -> None:
        """Stop monitoring the GPU."""
        if self._gpu:
            self._gpu.close()


def _count_transferred() -> dict[str, float]:
    """Return the number of bytes that disks and network have transferred since the machine started."""
    totals: dict[str, float] = {}
    with suppress(OSError, RuntimeError, psutil.Error):
        if disks := psutil.disk_io_counters():
            totals |= {"disk_read_rate": disks.read_bytes, "disk_write_rate": disks.write_bytes}
    with suppress(OSError, RuntimeError, psutil.Error):
        interfaces = [card for name, card in psutil.net_io_counters(pernic=True).items() if name != "lo"]
        totals["network_receive_rate"] = sum(card.bytes_recv for card in interfaces)
        totals["network_send_rate"] = sum(card.bytes_sent for card in interfaces)
    return totals


class GpuLoad:
    """The load of one GPU, which a thread reads every second.

        gpu_frac            share of the time in which a kernel ran, mean since the last reading
        gpu_memory_bytes    memory in use by all processes, largest; of gpu_memory_total_bytes
        gpu_celsius         temperature, largest
        gpu_watts           power, mean

    There are no readings without an NVIDIA driver, or if the driver does not know the GPU.
    """

    def __init__(self, uuid: str) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, list[float]] = {}
        self._ending = threading.Event()
        try:
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError:
            return
        threading.Thread(target=self._watch, args=(handle,), name="gpu load", daemon=True).start()

    def _watch(self, handle: Any) -> None:
        while not self._ending.is_set():
            self.see(_read_gpu(handle))
            self._ending.wait(INTERVAL_SECONDS)

    def see(self, values: Readings) -> None:
        """Add a reading."""
        with self._lock:
            for name, value in values.items():
                self._seen.setdefault(name, []).append(value)

    def read(self) -> Readings:
        """Return the mean or maximum values since the last call; empty if there was no reading in between."""
        with self._lock:
            readings, self._seen = self._seen, {}
        averaged_names = ("gpu_frac", "gpu_watts")
        return {
            name: fmean(values) if name in averaged_names else max(values)
            for name, values in readings.items()
        }

    def close(self) -> None:
        """Stop the thread."""
        self._ending.set()


def _read_gpu(handle: Any) -> Readings:
    """Return a reading without the values that this GPU or its driver does not support."""
    readers: dict[str, Callable[[], float]] = {
        "gpu_frac": lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
        "gpu_memory_bytes": lambda: float(pynvml.nvmlDeviceGetMemoryInfo(handle).used),
        "gpu_memory_total_bytes": lambda: float(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        "gpu_celsius": lambda: float(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)),
        "gpu_watts": lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
    }
    readings: Readings = {}
    for name, read_value in readers.items():
        with suppress(pynvml.NVMLError):
            readings[name] = read_value()
    return readings
