"""Whatever ends everything, the one command goes on by itself (rows 17 and 18 of the fault plan)."""

import pytest

from tests.faults.reboots import reboot


@pytest.mark.timeout(900)
def test_after_a_reboot_and_after_a_stop_a_run_ends_as_if_nothing_had_happened():
    played = reboot(seed=1, times=2, ways=("reboot", "up_asked"))
    assert played.verdict.sentences == []
    assert played.is_clean, played.line()
    assert played.verdict.attempts == 3
