"""The recorder stand-in of the benchmarks, which must still be enough to train."""

import sys

import pytest

from benchmarks.common.peers import ROOT, run
from benchmarks.step.tables import limits_table, operations_table
from benchmarks.step.workload import PROFILED, TINY

pytestmark = pytest.mark.nightly


def test_our_side_of_the_step_benchmark_counts_the_steps_after_the_warm_up():
    job = {"workload": TINY._replace(steps=6)._asdict(), "threads": 1, "seed": 0}
    answer = run(sys.executable, ROOT / "benchmarks/step/our_side.py", job)
    assert answer["steps"] == 1
    assert 0 < answer["fastest_seconds"] == answer["median_seconds"]


def test_the_limits_of_a_step_are_of_its_own_products():
    work = TINY._replace(warm_up_steps=1, steps=2 + PROFILED, max_new_tokens=4)
    found = run(
        sys.executable,
        ROOT / "benchmarks/step/limits.py",
        {"workload": work._asdict(), "threads": 1, "seed": 0},
    )
    assert found["sampling"]["passes"] == 4  # the prompts, and a token each but the last
    for part in ("sampling", "learning"):
        assert 0 < found[part]["products"] < found[part]["seconds"]
        assert found[part]["operations"]["mm"] > 0


def test_the_table_of_limits_is_right_by_hand():
    def figures(seconds, products):
        return {
            "seconds": seconds,
            "products": products,
            "passes": 50,
            "operations": {"mm": products, "mul": 0.001},
        }

    now = {
        "bytes_a_second": 2e9,
        "weights": 4_000_000,
        "sampling": figures(0.2, 0.05),
        "learning": figures(0.1, 0.05),
    }
    before = now | {"sampling": figures(0.4, 0.05), "learning": figures(0.3, 0.2)}
    table = limits_table({"now": now, "before": before}).splitlines()
    assert table[2] == "| sampling | 0.400 s | 0.200 s | 0.050 s | 25% | 0.100 s |"
    assert table[3] == "| learning | 0.300 s | 0.100 s | 0.050 s | 50% |  |"
    assert "| mm | 50.0 | 200.0 | 50.0 | 50.0 |" in operations_table({"now": now, "before": before})
