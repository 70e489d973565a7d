"""Tests of the load of this machine as the operating system reports it, and of sampled GPU load."""

import time

import psutil
import pytest

from backend.runs.workers.load import GpuLoad, MachineLoad


def test_a_reading_of_this_machine(tmp_path):
    load = MachineLoad(tmp_path)
    deadline = time.monotonic() + 0.3
    while time.monotonic() < deadline:
        sum(range(1000))
    measurements = load.read()
    assert measurements["cpu_frac"] > 0.5 / psutil.cpu_count()
    assert 0 < measurements["memory_bytes"] < measurements["memory_total_bytes"]
    assert 0 < measurements["disk_free_bytes"] <= psutil.disk_usage(str(tmp_path)).total
    assert not any(name.startswith("gpu") for name in measurements)
    assert all(quantity >= 0 for quantity in measurements.values())


def test_rates_are_bytes_since_the_last_reading(tmp_path, monkeypatch):
    rates = iter([{"disk_read_rate": 1000.0}, {"disk_read_rate": 4000.0}, {"disk_read_rate": 10.0}])
    monkeypatch.setattr("backend.runs.workers.load._count_transferred", lambda: next(rates))
    clock = iter([100.0, 102.0, 103.0])
    monkeypatch.setattr("backend.runs.workers.load.time.monotonic", lambda: next(clock))
    load = MachineLoad(tmp_path)
    assert load.read()["disk_read_rate"] == 1500
    assert load.read()["disk_read_rate"] == 0  # a counter that was reset


def test_samples_of_a_gpu_become_means_and_maxima():
    gpu = GpuLoad("none")
    gpu.see({"gpu_frac": 0.2, "gpu_watts": 100, "gpu_celsius": 50, "gpu_memory_bytes": 10})
    gpu.see({"gpu_frac": 0.6, "gpu_celsius": 60, "gpu_memory_bytes": 4})
    assert gpu.read() == {
        "gpu_frac": pytest.approx(0.4),
        "gpu_watts": 100,
        "gpu_celsius": 60,
        "gpu_memory_bytes": 10,
    }
    assert gpu.read() == {}
