"""No run starts twice, however often the bell rings (row 7 of the fault plan; `make faults FORMS=bells`)."""

import pytest

from tests.faults.bells import ring_doubled
from tests.faults.plant import Kind

pytestmark = pytest.mark.nightly


@pytest.mark.timeout(600)
def test_bells_that_are_delivered_twice_or_more_start_each_run_once(warm):
    played = ring_doubled(Kind("sqlite", "valkey"), warm, seed=1, runs=4, bells=40, workers=2)
    assert played.verdict.sentences == []
    assert played.is_clean, played.line()
    assert played.verdict.attempts == played.verdict.runs == 4
    assert played.measured["deliveries"] >= 80
