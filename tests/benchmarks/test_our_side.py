"""The recorder stand-in of the benchmarks, which must still be enough to train."""

import sys

import pytest

from benchmarks.common.peers import ROOT, run
from benchmarks.step.workload import TINY

pytestmark = pytest.mark.nightly


def test_our_side_of_the_step_benchmark_counts_the_steps_after_the_warm_up():
    job = {"workload": TINY._replace(steps=6)._asdict(), "threads": 1, "seed": 0}
    answer = run(sys.executable, ROOT / "benchmarks/step/our_side.py", job)
    assert answer["steps"] == 1
    assert 0 < answer["fastest_seconds"] == answer["median_seconds"]
