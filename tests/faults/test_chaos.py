"""Random faults on real training: every run ends, nothing committed is lost, every value is bit-equal.

The short form; `make faults` is the long one. Rows 1, 3, 5, 6, 8 and 12 of the fault plan in one storm.
"""

import random

import pytest

from tests.faults.campaign import play
from tests.faults.plant import Kind, Plant

pytestmark = pytest.mark.timeout(900)  # alone 20 s; on a busy machine as long as it takes


@pytest.mark.parametrize(("database", "broker"), [("sqlite", "valkey"), ("postgres", "filesystem")])
def test_runs_in_a_storm_end_as_if_nothing_had_happened(warm, database, broker):
    with Plant(Kind(database, broker), warm) as plant:
        played = play(plant, seed=random.randrange(10**9), runs=4, faults=12)
    assert played.verdict.sentences == []
    assert played.is_clean, played.line()
    assert played.verdict.steps == 4 * 18
