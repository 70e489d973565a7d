"""Return of free memory to the system."""

import psutil

from backend.service.process.memory import return_memory


def test_what_lies_below_something_that_is_kept_is_returned():
    """The C library returns by itself only what is free at the end of its heap."""
    blocks = [b"x" * 60_000 for _ in range(1_000)]
    last_block = blocks[-1]
    before = psutil.Process().memory_info().rss
    del blocks
    return_memory()
    assert psutil.Process().memory_info().rss < before - 50_000_000
    assert len(last_block) == 60_000
