import pytest

from worker.host.hang_detector import HangDetector, HangLimits


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def detector_after(seconds, clock, *, count=10):
    """Return the HangDetector of a trainer after this number of steps of equal duration."""
    progress = HangDetector(HangLimits(), clock=clock)
    progress.observe_progress(0, 0.0)
    for step in range(1, count + 1):
        clock.now += seconds
        progress.observe_progress(step, clock.now)
    return progress


def test_quick_steps_may_pause_for_ten_minutes(clock):
    progress = detector_after(1, clock)
    clock.now += 600
    progress.observe_progress(10, 10.0)
    assert not progress.is_hung
    clock.now += 1
    assert progress.is_hung


def test_slow_steps_may_pause_for_twenty_step_durations(clock):
    assert detector_after(60, clock).limit_seconds == 1200


def test_after_a_long_evaluation_the_next_may_take_as_long(clock):
    progress = detector_after(1, clock)
    clock.now += 500
    progress.observe_progress(11, clock.now)
    assert progress.limit_seconds == 1500


def test_the_first_step_may_take_an_hour(clock):
    progress = HangDetector(HangLimits(), clock=clock)
    clock.now += 3600
    assert not progress.is_hung


def test_a_silent_database_does_not_mean_a_silent_trainer(clock):
    progress = detector_after(1, clock)
    clock.now += 599
    progress.reset_silence()
    clock.now += 599
    assert not progress.is_hung
