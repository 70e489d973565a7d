"""Test that every process ends soon and loses nothing (row 17 of the plan; `make faults FORMS=stops`)."""

import pytest

from tests.faults.plant import Kind
from tests.faults.stops import WAYS, stop

pytestmark = pytest.mark.nightly


@pytest.mark.timeout(600)
def test_runs_and_workers_that_are_asked_to_end_save_and_go_on(warm):
    played = stop(Kind("sqlite", "valkey"), warm, seed=1, times=len(WAYS))
    assert played.verdict.sentences == []
    assert played.is_clean, played.line()
    assert dict(played.faults) == dict.fromkeys(WAYS, 1)
