"""Test of the full path on a GPU, from the launch over HTTP to a killed and repeated run."""

import csv
import os
import signal
import time

import pytest
import torch

from benchmarks.common.service import ENDED_STATUSES, Service

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this machine has no CUDA device"),
]

STEP_COUNT = 12
MACHINE_PREFIXES = ("time/", "throughput/", "machine/", "memory/")
BASE_CONFIG = {
    "policy": {"name": "tiny", "dtype": "bfloat16"},
    "steps": STEP_COUNT,
    "sampling": {"prompts_per_step": 8, "group_size": 8, "max_new_tokens": 64},
    "checkpointing": {"every": 4},
    "evaluation": {"every": 6, "prompts": 8},
}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    new_service = Service(str(tmp_path_factory.mktemp("gpu")))
    try:
        new_service.wait()
        yield new_service
    finally:
        new_service.http.close()
        new_service.stop()


def launch(service):
    body = {"name": "gpu", "base": BASE_CONFIG, "variants": [{"name": "run"}], "seeds": [0]}
    response = service.http.post("/api/v1/experiments", json=body)
    assert response.is_success, response.text
    return response.json()["runs"][0]["id"]


def wait_until(service, run, condition):
    deadline = time.monotonic() + 600
    while not condition(current_run := service.get(f"/runs/{run}")):
        assert time.monotonic() < deadline, current_run
        time.sleep(0.05)
    return current_run


def metrics(service, run):
    response = service.http.get(f"/api/v1/runs/{run}/metrics.csv").raise_for_status()
    rows = list(csv.DictReader(response.text.splitlines()))
    return [
        {key: metric_value for key, metric_value in row.items() if not key.startswith(MACHINE_PREFIXES)}
        for row in rows
    ]


def test_a_run_killed_on_a_gpu_repeats_exactly_and_reports_gpu_metrics(service):
    (slot,) = service.get("/workers")["items"]
    assert slot["device"] == "cuda:0"
    undisturbed_run = launch(service)
    run_json = wait_until(service, undisturbed_run, lambda run: run["status"] in ENDED_STATUSES)
    assert (run_json["status"], run_json["last_step"]) == ("finished", STEP_COUNT), run_json["reason"]
    last = run_json["summary"]["last"]
    assert last["mismatch/prob_diff_max"] < 0.1
    assert last["throughput/mfu"] > 0
    killed_run = launch(service)
    half_trained = wait_until(service, killed_run, lambda run: (run["last_step"] or 0) >= STEP_COUNT // 2)
    os.kill(half_trained["attempts"][-1]["pid"], signal.SIGKILL)
    ended_run = wait_until(service, killed_run, lambda run: run["status"] in ENDED_STATUSES)
    assert (ended_run["status"], ended_run["last_step"]) == ("finished", STEP_COUNT), ended_run["reason"]
    assert len(ended_run["attempts"]) == 2
    expected, points = metrics(service, undisturbed_run), metrics(service, killed_run)
    assert len(points) == len(expected) >= STEP_COUNT
    for expected_row, repeated_row in zip(expected, points, strict=True):
        assert repeated_row == expected_row
