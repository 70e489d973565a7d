"""Test that every process ends soon and loses nothing (row 17 of the plan; `make faults FORMS=stops`)."""

import pytest

from tests.faults.plant import Kind
from tests.faults.stops import STOP_KINDS, stop

pytestmark = pytest.mark.nightly


@pytest.mark.timeout(600)
def test_runs_and_workers_asked_to_end_save_and_continue(warm):
    played_round = stop(Kind("sqlite", "valkey"), warm, seed=1, times=len(STOP_KINDS))
    assert played_round.verdict.sentences == []
    assert played_round.is_clean, played_round.line()
    assert dict(played_round.faults) == dict.fromkeys(STOP_KINDS, 1)
