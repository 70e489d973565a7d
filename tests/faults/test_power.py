"""Tests of power cuts: acknowledged data is on disk, and runs continue (`make faults FORMS=power`).

The short form cuts at a sample of the points and the long one at every point. Both need root and loop
devices."""

import pytest

from tests.faults.disks import reason_without_disks
from tests.faults.power import INTERVAL_BY_ACT, cut_power

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

SAMPLE_SIZE = 3


@pytest.fixture(autouse=True, scope="module")
def _disks():
    if reason := reason_without_disks():
        pytest.skip(reason)


@pytest.mark.parametrize(
    ("database", "act"),
    [*(("sqlite", act) for act in INTERVAL_BY_ACT), ("postgres", "launching"), ("postgres", "restoring")],
)
def test_a_power_cut_loses_nothing_that_was_acknowledged(database, act):
    limit = 1 if act == "training" else SAMPLE_SIZE
    played_round = cut_power(database, act, interval=1, first=1, limit=limit)
    assert played_round.verdict.sentences == []
    assert played_round.is_clean, played_round.line()
    assert played_round.faults["power_cut"] >= 1


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_without_syncs_the_same_cuts_lose_acknowledged_data(database):
    played_round = cut_power(database, "launching", interval=1, first=1, limit=SAMPLE_SIZE, syncs=False)
    assert played_round.measured["cuts_that_lost"] >= 1
    assert played_round.verdict.sentences == []
