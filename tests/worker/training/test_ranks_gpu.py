"""Tests of runs on several GPUs with NCCL."""

import pytest
import torch

from backend.runs.workers.devices import find_gpus
from tests.worker.training.ranks import CASES, compare_runs, train

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="this machine has fewer than two CUDA devices"),
]

MAX_DIFFERENCE = 1e-4
"""Largest difference that the order of sums may cause on a GPU, where it is larger than on a CPU."""


@pytest.mark.parametrize("case", CASES)
def test_steps_on_two_gpus_match_those_of_one(case):
    gpus = [gpu.uuid for gpu in find_gpus()][:2]
    single_gpu_run = train(CASES[case], ranks=1, steps=3, device="cuda:0")
    differences = compare_runs(
        single_gpu_run, train(CASES[case], ranks=2, steps=3, device="cuda:0", gpus=gpus)
    )
    assert (
        max(differences.norm, differences.metric, differences.weight)
        < MAX_DIFFERENCE
        < differences.weight_change
    ), differences
