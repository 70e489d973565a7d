import pytest

from worker.host.hang_detector import HangDetector, HangLimits


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def steps_of(seconds, clock, *, count=10):
    """Return the HangDetector of a trainer after this number of steps of equal duration."""
    progress = HangDetector(HangLimits(), clock=clock)
    progress.see(0, 0.0)
    for step in range(1, count + 1):
        clock.now += seconds
        progress.see(step, clock.now)
    return progress


def test_quick_steps_may_pause_for_ten_minutes(clock):
    progress = steps_of(1, clock)
    clock.now += 600
    progress.see(10, 10.0)
    assert not progress.is_hung
    clock.now += 1
    assert progress.is_hung


def test_slow_steps_may_pause_for_twenty_of_them(clock):
    assert steps_of(60, clock).limit_seconds == 1200


def test_a_long_evaluation_may_take_long_again(clock):
    progress = steps_of(1, clock)
    clock.now += 500
    progress.see(11, clock.now)
    assert progress.limit_seconds == 1500


def test_the_first_step_may_take_an_hour(clock):
    progress = HangDetector(HangLimits(), clock=clock)
    clock.now += 3600
    assert not progress.is_hung


def test_silence_of_a_database_is_not_silence_of_the_trainer(clock):
    progress = steps_of(1, clock)
    clock.now += 599
    progress.lose_sight()
    clock.now += 599
    assert not progress.is_hung
