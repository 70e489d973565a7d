import threading
import time

import pytest

from worker.recording import write_queue as outbox
from worker.recording.write_queue import WriteQueue


class Reader:
    """A writer thread that takes one batch."""

    def __init__(self, box):
        self.taken = []
        self._thread = threading.Thread(target=lambda: self.taken.append(box.take(time.monotonic())))
        self._thread.start()

    def has_taken(self):
        """Return whether the writer takes a batch before the lull, which never comes."""
        self._thread.join(60)
        return not self._thread.is_alive()


@pytest.fixture
def box(monkeypatch):
    """A queue whose writer waits for a lull of the training thread as long as the test needs."""
    monkeypatch.setattr(outbox, "LULL_SECONDS", 1e9)
    box = WriteQueue()
    with box.allow_writes():
        pass
    box.put("step 1", 1)
    return box


def test_the_writer_waits_for_a_lull(box, monkeypatch):
    wait_calls, wait = threading.Semaphore(0), box._changed.wait

    def count_wait(seconds):
        wait_calls.release()
        wait(seconds)

    monkeypatch.setattr(box._changed, "wait", count_wait)
    taker = Reader(box)
    assert all(wait_calls.acquire(timeout=60) for _ in range(3))
    assert taker.taken == []
    with box.allow_writes():
        assert taker.has_taken()
    assert taker.taken == [["step 1"]]


@pytest.mark.parametrize("hurry", [WriteQueue.flush, WriteQueue.close])
def test_a_flush_does_not_wait_for_a_lull(box, hurry):
    taker = Reader(box)
    waiting_thread = threading.Thread(target=hurry, args=(box,))
    waiting_thread.start()
    assert taker.has_taken()
    box.mark_written(1)
    waiting_thread.join()


def test_the_writer_does_not_wait_for_a_blocked_training_thread(box, monkeypatch):
    monkeypatch.setattr(outbox, "MAX_ITEMS", 1)
    waiting_thread = threading.Thread(target=box.put, args=("step 2", 1))
    waiting_thread.start()
    while not box.is_holding:
        time.sleep(0.01)
    assert Reader(box).has_taken()
    waiting_thread.join()


def test_without_a_lull_the_writer_continues_after_a_while(box, monkeypatch):
    monkeypatch.setattr(outbox, "LULL_SECONDS", 0.1)
    assert Reader(box).has_taken()
