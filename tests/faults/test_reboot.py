"""Test that `make up` continues by itself after everything was killed at once (row 18 of the fault plan)."""

import pytest

from tests.faults.reboots import reboot

pytestmark = pytest.mark.nightly


@pytest.mark.timeout(900)
def test_after_a_reboot_a_run_ends_bit_equal():
    played_round = reboot(seed=1, times=1, shutdowns=("reboot",))
    assert played_round.verdict.sentences == []
    assert played_round.is_clean, played_round.line()
    assert played_round.verdict.attempts >= 2
